// A command to copy into a terminal.
import { useState } from 'preact/hooks';

/** The browser offers the clipboard only on pages that it considers secure (https, localhost). */
async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

export function CopyableCommand({ command, note }: { command: string; note?: string }) {
  const [state, setState] = useState('');
  const onClick = async (event: MouseEvent) => {
    const code = (event.currentTarget as HTMLElement).parentElement?.querySelector('code');
    if (await copy(command)) setState('copied');
    else if (code) {
      getSelection()?.selectAllChildren(code); // Ctrl+C copies it
      setState('selected');
    }
  };
  return (
    <div class="copyable">
      <code>{command}</code>
      {note && <span class="dim">{note}</span>}
      <button
        type="button"
        aria-label={`Copy: ${command}`}
        onClick={(event) => void onClick(event)}
      >
        <span aria-live="polite">{state || 'Copy'}</span>
      </button>
    </div>
  );
}
