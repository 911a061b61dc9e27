// What happened, at the bottom, with the way back where there is one.
import { signal } from '@preact/signals';
import { ApiError } from '../api';
import { isTold } from '../stream';
import { inPageWords } from '../words';

export interface Step {
  label: string;
  run(): void;
}

interface Toast {
  id: number;
  text: string;
  hint?: string;
  isError: boolean;
  /** What it speaks of: a later word about the same takes its place. */
  about?: string;
  steps: Step[];
}

const toasts = signal<Toast[]>([]);
let last = 0;
let cameFrom: HTMLElement | null = null;

const drop = (id: number) => (toasts.value = toasts.value.filter((one) => one.id !== id));

function show(toast: Omit<Toast, 'id'>, milliseconds: number): void {
  const id = ++last;
  const others = toasts.value.filter((one) => !toast.about || one.about !== toast.about);
  toasts.value = [...others.slice(-2), { ...toast, id }];
  setTimeout(() => drop(id), milliseconds);
}

export const tell = (text: string, about = '', ...steps: Step[]) =>
  show({ text, isError: false, about, steps }, steps.length ? 12_000 : 5000);

export const undo = (run: () => void): Step => ({ label: 'Undo', run });

export function complain(error: unknown): void {
  if (isTold(error)) return;
  const text = error instanceof Error ? error.message : String(error);
  show({ text: inPageWords(text), hint: error instanceof ApiError ? inPageWords(error.hint) : '', isError: true, steps: [] }, 12_000);
}

/** The key `u`: the newest way back that is still offered. */
export function undoLast(): void {
  const toast = toasts.value.findLast((one) => one.steps.some((step) => step.label === 'Undo'));
  if (toast) take(toast, toast.steps.find((step) => step.label === 'Undo')!);
}

function take(toast: Toast, step: Step): void {
  // The button goes with its message; the focus goes back to where it was, or to the heading when
  // that is gone too.
  if (document.querySelector('.toasts')?.contains(document.activeElement)) {
    const place = cameFrom?.isConnected ? cameFrom : document.querySelector<HTMLElement>('main h1');
    place?.focus({ preventScroll: true });
  }
  drop(toast.id);
  step.run();
}

export function Toasts() {
  return (
    <div
      class="toasts"
      role="status"
      aria-live="polite"
      onFocusIn={(event) => {
        const from = event.relatedTarget;
        if (from instanceof HTMLElement && !event.currentTarget.contains(from)) cameFrom = from;
      }}
    >
      {toasts.value.map((one) => (
        <div key={one.id} class={one.isError ? 'toast bad' : 'toast'} role={one.isError ? 'alert' : undefined}>
          <span class="grow">
            {one.text}
            {one.hint && <small>{one.hint}</small>}
          </span>
          {one.steps.map((step) => (
            <button key={step.label} class="link" title={step.label === 'Undo' ? 'Undo (u)' : undefined} onClick={() => take(one, step)}>
              {step.label}
            </button>
          ))}
          <button class="icon" aria-label="Dismiss" onClick={() => drop(one.id)}>×</button>
        </div>
      ))}
    </div>
  );
}
