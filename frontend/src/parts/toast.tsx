// What happened, in a corner, with the way back where there is one.
import { signal } from '@preact/signals';
import { ApiError } from '../api';

interface Toast {
  id: number;
  text: string;
  hint?: string;
  isError: boolean;
  label?: string;
  run?: () => void;
}

const toasts = signal<Toast[]>([]);
let last = 0;

const drop = (id: number) => (toasts.value = toasts.value.filter((one) => one.id !== id));

function show(toast: Omit<Toast, 'id'>, milliseconds: number): void {
  const id = ++last;
  toasts.value = [...toasts.value.slice(-2), { ...toast, id }];
  setTimeout(() => drop(id), milliseconds);
}

export const tell = (text: string, label?: string, run?: () => void) =>
  show({ text, isError: false, label, run }, run ? 10_000 : 5000);

export function complain(error: unknown): void {
  const text = error instanceof Error ? error.message : String(error);
  show({ text, hint: error instanceof ApiError ? error.hint : '', isError: true }, 12_000);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((one) => (
        <div key={one.id} class={one.isError ? 'toast bad' : 'toast'} role={one.isError ? 'alert' : undefined}>
          <span class="grow">
            {one.text}
            {one.hint && <small>{one.hint}</small>}
          </span>
          {one.run && (
            <button class="link" onClick={() => { drop(one.id); one.run?.(); }}>
              {one.label}
            </button>
          )}
          <button class="icon" aria-label="Dismiss" onClick={() => drop(one.id)}>×</button>
        </div>
      ))}
    </div>
  );
}
