// The note of a job or sweep, edited in place. It is saved while the user types. The last writer wins.
import { useEffect, useRef, useState } from 'preact/hooks';
import { type Note, type Target, keyOf, nameOf, saveNote } from '../annotations';
import { isReadOnly } from '../store';
import { visible } from '../words';
import { notify, undo } from './toast';

const PAUSE_MS = 700; // after the last key
const RETRY_MS = 3000;
type Status = 'saved' | 'unsaved' | 'saving' | { problem: string };

export function NoteBox({
  target,
  value,
  onSaved,
}: {
  target: Target;
  value: Note;
  onSaved: () => void;
}) {
  const [isOpen, setOpen] = useState(false);
  const [shown, setShown] = useState(value); // the newest that is known
  useEffect(() => {
    setShown((old) => (value.note_revision >= old.note_revision ? value : old));
  }, [value.note_revision, value.note]);
  const button = useRef<HTMLButtonElement>(null);

  const showSaved = (saved: Note) => {
    setShown(saved);
    onSaved();
  };
  const restore = async (text: string) => showSaved(await saveNote(target, text, false));
  const onClose = (before: string, now: Note) => {
    setOpen(false);
    setTimeout(() => button.current?.focus());
    if (now.note !== before)
      notify(
        `Note of ${nameOf(target)} saved`,
        `note ${keyOf(target)}`,
        undo(() => void restore(before)),
      );
  };

  return (
    <div class="note-box" role="group" aria-label="Note">
      {isOpen ? (
        <Editor target={target} value={shown} onSaved={showSaved} onClose={onClose} />
      ) : (
        <>
          {shown.note && <div class="note-text">{visible(shown.note)}</div>}
          {!isReadOnly.value && (
            <button ref={button} class="link" onClick={() => setOpen(true)}>
              {shown.note ? 'Edit note' : '+ note'}
            </button>
          )}
        </>
      )}
    </div>
  );
}

function Editor({
  target,
  value,
  onSaved,
  onClose,
}: {
  target: Target;
  value: Note;
  onSaved(saved: Note): void;
  onClose(before: string, now: Note): void;
}) {
  const [text, setText] = useState(value.note);
  const [status, setStatus] = useState<Status>('saved');
  const field = useRef<HTMLTextAreaElement>(null);
  // What the requests use: the note before this edit, the newest saved one, and the text to save.
  const edit = useRef({ before: value.note, saved: value, text: value.note, isFirst: true });
  const timer = useRef(0);
  const isSaving = useRef(false);

  const save = async (): Promise<void> => {
    clearTimeout(timer.current);
    const now = edit.current;
    if (isSaving.current || now.text.trimEnd() === now.saved.note) {
      if (!isSaving.current) setStatus('saved');
      return;
    }
    isSaving.current = true;
    setStatus('saving');
    const sent = now.text;
    try {
      const saved = await saveNote(target, sent, !now.isFirst);
      now.saved = saved;
      now.isFirst = false;
      onSaved(saved);
      isSaving.current = false;
      setStatus(now.text === sent ? 'saved' : 'unsaved');
      if (now.text !== sent) return save();
    } catch (error) {
      isSaving.current = false;
      setStatus({ problem: error instanceof Error ? error.message : String(error) });
      timer.current = window.setTimeout(() => void save(), RETRY_MS);
    }
  };
  const close = async () => {
    await save();
    if (edit.current.text.trimEnd() === edit.current.saved.note)
      onClose(edit.current.before, edit.current.saved);
  };

  useEffect(() => {
    const area = field.current!;
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
    const warn = (event: BeforeUnloadEvent) => {
      if (edit.current.text.trimEnd() !== edit.current.saved.note) event.preventDefault();
    };
    addEventListener('beforeunload', warn);
    return () => {
      removeEventListener('beforeunload', warn);
      void save(); // another screen was opened
    };
  }, []);

  return (
    <div class="note-editor">
      <textarea
        ref={field}
        value={text}
        rows={Math.min(24, Math.max(4, text.split('\n').length + 1))}
        aria-label={`Note of ${nameOf(target)}`}
        placeholder="What did you learn?"
        onInput={(event) => {
          setText((edit.current.text = event.currentTarget.value));
          setStatus('unsaved');
          clearTimeout(timer.current);
          timer.current = window.setTimeout(() => void save(), PAUSE_MS);
        }}
        onKeyDown={(event) => {
          const isEnd =
            event.key === 'Escape' || (event.key === 'Enter' && (event.ctrlKey || event.metaKey));
          if (!isEnd) return;
          event.preventDefault();
          event.stopPropagation();
          void close();
        }}
      />
      <p class="row">
        <button onClick={() => void close()}>Done</button>
        <span class={typeof status === 'object' ? 'bad-ink' : 'dim'} role="status">
          {status === 'saved'
            ? 'saved'
            : status === 'saving'
              ? 'saving…'
              : status === 'unsaved'
                ? 'not saved yet'
                : `not saved: ${status.problem}; trying again`}
        </span>
      </p>
    </div>
  );
}
