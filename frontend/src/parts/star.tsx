// The star of a job or sweep, as a button that toggles it, and the mark of those with a note.
import { useEffect, useRef } from 'preact/hooks';
import { type Target, forgetStar, keyOf, nameOf, newStars, setStar } from '../annotations';
import { isReadOnly } from '../store';
import { visible } from '../words';

const PATH = 'M10 2.6l2.3 4.7 5.1.7-3.7 3.6.9 5.1L10 14.3l-4.6 2.4.9-5.1L2.6 8l5.1-.7z';

export function Star({
  target,
  isStarred,
  isInTable = false,
  onChanged,
}: {
  target: Target;
  isStarred: boolean;
  isInTable?: boolean;
  onChanged?: () => void;
}) {
  const shown = newStars.value.get(keyOf(target)) ?? isStarred;
  // New data replaces what was set here.
  const before = useRef(isStarred);
  useEffect(() => {
    if (before.current !== isStarred) forgetStar(target);
    before.current = isStarred;
  }, [isStarred]);
  const icon = (
    <svg viewBox="0 0 20 20" width="15" height="15" aria-hidden="true">
      <path d={PATH} />
    </svg>
  );
  if (isReadOnly.value)
    return shown ? (
      <span class="star on" role="img" aria-label="starred">
        {icon}
      </span>
    ) : null;
  return (
    <button
      type="button"
      class={shown ? 'star on' : 'star'}
      aria-pressed={shown}
      aria-label={`Star ${nameOf(target)}`}
      title={`${shown ? 'Remove the star' : 'Star'} (s)`}
      tabIndex={isInTable ? -1 : 0}
      onClick={() => void setStar(target, !shown, onChanged)}
    >
      {icon}
    </button>
  );
}

/** Marks a job or sweep with a note in tables; the tooltip is its first line. */
export function NoteMark({ line }: { line: string | null }) {
  if (!line) return null;
  return (
    <span class="note-mark" title={visible(line)}>
      <svg viewBox="0 0 20 20" width="14" height="14" aria-hidden="true">
        <path d="M4 3h9l3 3v11H4zM7 8h6M7 11h6M7 14h4" />
      </svg>
      <span class="visually-hidden">note: {visible(line)}</span>
    </span>
  );
}
