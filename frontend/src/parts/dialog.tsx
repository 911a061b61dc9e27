// Confirmation dialogs and small forms. The native <dialog> element traps the focus, closes on Escape
// and restores the focus.
import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { ApiError } from '../api';
import { withFieldLabels } from '../words';

interface Question {
  title: string;
  body?: ComponentChildren;
  yes: string;
  isDanger?: boolean;
  /** An input field. */
  field?: { label: string; value: string; type?: string; hint?: string };
  /** A checkbox. */
  box?: { label: string; value: boolean };
  /** The action of the `yes` button. If it fails, the dialog stays open and shows the error. */
  run?(answer: Answer): Promise<void>;
}

interface Answer {
  value: string;
  box: boolean;
  /** All inputs, also those in `body`. */
  form: FormData;
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
  const [problem, setProblem] = useState<unknown>(null);
  const now = open.value;
  useLayoutEffect(() => {
    setProblem(null);
    if (now) {
      answer.current = null;
      if (!dialog.current?.open) dialog.current?.showModal(); // a question may follow another
    }
  }, [now]);
  if (!now) return null;
  const { title, body, yes, isDanger, field, box, run } = now.question;
  const onSubmit = async (event: Event) => {
    event.preventDefault();
    const form = new FormData(event.target as HTMLFormElement);
    const given = { value: String(form.get('value') ?? ''), box: form.get('box') === 'on', form };
    try {
      await run?.(given);
    } catch (error) {
      return setProblem(error);
    }
    answer.current = given;
    dialog.current?.close();
  };
  const onClose = () => {
    if (dialog.current?.open) return; // this event is about an earlier question
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
            <input
              name="value"
              type={field.type ?? 'text'}
              defaultValue={field.value}
              autofocus
              required
              aria-invalid={problem !== null}
              aria-describedby="dialog-problem"
            />
            {field.hint && <small>{field.hint}</small>}
          </label>
        )}
        <div id="dialog-problem" role="alert">
          {problem !== null && (
            <p class="bad-ink">
              {withFieldLabels(problem instanceof Error ? problem.message : String(problem))}
              {problem instanceof ApiError && problem.hint && (
                <small class="dim"> {withFieldLabels(problem.hint)}</small>
              )}
            </p>
          )}
        </div>
        {box && (
          <label class="check">
            <input name="box" type="checkbox" defaultChecked={box.value} /> {box.label}
          </label>
        )}
        <div class="row end">
          <button type="button" class={yes ? '' : 'primary'} autofocus={!field} onClick={close}>
            {yes ? 'Back' : 'Close'}
          </button>
          {yes && <button class={isDanger ? 'danger' : 'primary'}>{yes}</button>}
        </div>
      </form>
    </dialog>
  );
}
