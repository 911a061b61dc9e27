// Messages at the bottom of the window, with an undo button where an action can be undone.
import { signal } from '@preact/signals';
import { ApiError } from '../api';
import { isInBanner } from '../stream';
import { withFieldLabels } from '../words';

export interface Step {
  label: string;
  run(): void;
}

interface Toast {
  id: number;
  text: string;
  hint?: string;
  isError: boolean;
  /** The subject: a newer message about the same subject replaces this one. */
  about?: string;
  steps: Step[];
}

const toasts = signal<Toast[]>([]);
let last = 0;
let focusedBefore: HTMLElement | null = null;

const dismiss = (id: number) => (toasts.value = toasts.value.filter((one) => one.id !== id));

function show(toast: Omit<Toast, 'id'>): void {
  const id = ++last;
  const others = toasts.value.filter((one) => !toast.about || one.about !== toast.about);
  toasts.value = [...others.slice(-2), { ...toast, id }];
}

export const notify = (text: string, about = '', ...steps: Step[]) =>
  show({ text, isError: false, about, steps });

export const undo = (run: () => void): Step => ({ label: 'Undo', run });

export function showError(error: unknown): void {
  if (isInBanner(error)) return;
  const text = error instanceof Error ? error.message : String(error);
  show({
    text: withFieldLabels(text),
    hint: error instanceof ApiError ? withFieldLabels(error.hint) : '',
    isError: true,
    steps: [],
  });
}

/** Run the newest undo action that is still shown (key u). */
export function undoLast(): void {
  const toast = toasts.value.findLast((one) => one.steps.some((step) => step.label === 'Undo'));
  if (toast)
    runStep(
      toast,
      toast.steps.find((step) => step.label === 'Undo')!,
    );
}

function runStep(toast: Toast, step: Step): void {
  // The button disappears with its message. Return the focus to the previous element, or to the
  // heading if that element is gone.
  if (document.querySelector('.toasts')?.contains(document.activeElement)) {
    const place = focusedBefore?.isConnected
      ? focusedBefore
      : document.querySelector<HTMLElement>('main h1');
    place?.focus({ preventScroll: true });
  }
  dismiss(toast.id);
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
        if (from instanceof HTMLElement && !event.currentTarget.contains(from))
          focusedBefore = from;
      }}
    >
      {toasts.value.map((one) => (
        <div
          key={one.id}
          class={`toast${one.isError ? ' bad' : ''}${one.isError || one.steps.length ? ' slow' : ''}`}
          role={one.isError ? 'alert' : undefined}
          onAnimationEnd={(event) => event.animationName === 'expire' && dismiss(one.id)}
        >
          <span class="grow">
            {one.text}
            {one.hint && <small>{one.hint}</small>}
          </span>
          {one.steps.map((step) => (
            <button
              key={step.label}
              class="link"
              title={step.label === 'Undo' ? 'Undo (u)' : undefined}
              onClick={() => runStep(one, step)}
            >
              {step.label}
            </button>
          ))}
          <button class="icon" aria-label="Dismiss" onClick={() => dismiss(one.id)}>
            ×
          </button>
        </div>
      ))}
    </div>
  );
}
