// Questions before something is destroyed, and small forms. The native element keeps the focus
// inside, closes on Escape and gives the focus back.
import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';

interface Question {
  title: string;
  body?: ComponentChildren;
  yes: string;
  isDanger?: boolean;
  /** Ask for a value too. */
  field?: { label: string; value: string; type?: string; hint?: string };
  /** And for a yes or no beside it. */
  box?: { label: string; value: boolean };
}

interface Answer {
  value: string;
  box: boolean;
}

const open = signal<{ question: Question; done(answer: Answer | null): void } | null>(null);

export function ask(question: Question): Promise<Answer | null> {
  open.value?.done(null);
  return new Promise((done) => (open.value = { question, done }));
}

export const inform = (title: string, body: ComponentChildren) => ask({ title, body, yes: '' });

export function DialogHost() {
  const dialog = useRef<HTMLDialogElement>(null);
  const answer = useRef<Answer | null>(null);
  const now = open.value;
  useLayoutEffect(() => {
    if (now) {
      answer.current = null;
      dialog.current?.showModal();
    }
  }, [now]);
  if (!now) return null;
  const { title, body, yes, isDanger, field, box } = now.question;
  const onSubmit = (event: Event) => {
    event.preventDefault();
    const form = new FormData(event.target as HTMLFormElement);
    answer.current = { value: String(form.get('value') ?? ''), box: form.get('box') === 'on' };
    dialog.current?.close();
  };
  const onClose = () => {
    if (open.value === now) open.value = null;
    now.done(answer.current);
  };
  const close = () => dialog.current?.close();
  return (
    <dialog
      ref={dialog}
      class="dialog"
      aria-labelledby="dialog-title"
      onClose={onClose}
      onClick={(event) => event.target === dialog.current && close()}
    >
      <form onSubmit={onSubmit}>
        <h2 id="dialog-title">{title}</h2>
        {body && <div class="dialog-body">{body}</div>}
        {field && (
          <label class="field">
            <span>{field.label}</span>
            <input name="value" type={field.type ?? 'text'} value={field.value} autofocus required />
            {field.hint && <small>{field.hint}</small>}
          </label>
        )}
        {box && (
          <label class="check">
            <input name="box" type="checkbox" defaultChecked={box.value} /> {box.label}
          </label>
        )}
        <div class="row end">
          <button type="button" class={yes ? '' : 'primary'} autofocus={!field} onClick={close}>
            {yes ? 'Keep as is' : 'Close'}
          </button>
          {yes && <button class={isDanger ? 'danger' : 'primary'}>{yes}</button>}
        </div>
      </form>
    </dialog>
  );
}
