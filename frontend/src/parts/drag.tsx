// Drag and drop of table rows by their handle, by mouse or touch.
import type { RefObject } from 'preact';
import { useRef, useState } from 'preact/hooks';

interface Drag {
  start(event: PointerEvent, index: number): void;
  kindOf(index: number): string;
}

const swallow = (event: Event) => event.stopPropagation();

export function useDrag(
  body: RefObject<HTMLElement>,
  height: number,
  length: number,
  onDrop?: (from: number, to: number) => void,
): Drag {
  const [state, setState] = useState<{ from: number; to: number } | null>(null);
  const at = useRef(state);
  const set = (next: { from: number; to: number } | null) => setState((at.current = next));

  const start = (event: PointerEvent, from: number) => {
    if (event.button !== 0 || !onDrop) return;
    event.preventDefault();
    const grip = event.currentTarget as HTMLElement;
    grip.setPointerCapture(event.pointerId);
    set({ from, to: from });
    let last = event.clientY;
    const move = (moved: PointerEvent) => {
      const top = body.current?.getBoundingClientRect().top ?? 0;
      const to = Math.max(0, Math.min(length - 1, Math.floor((moved.clientY - top) / height)));
      if (moved.clientY < 110 && moved.clientY < last) scrollBy(0, -height);
      if (moved.clientY > innerHeight - 40 && moved.clientY > last) scrollBy(0, height);
      last = moved.clientY;
      if (to !== at.current?.to) set({ from, to });
    };
    const end = (isDrop: boolean) => {
      grip.removeEventListener('pointermove', move);
      removeEventListener('keydown', escape, true);
      // Releasing the pointer must not count as a click on the row below.
      addEventListener('click', swallow, { capture: true, once: true });
      setTimeout(() => removeEventListener('click', swallow, true));
      const drag = at.current;
      set(null);
      if (isDrop && drag && drag.to !== drag.from) onDrop(drag.from, drag.to);
    };
    const escape = (pressed: KeyboardEvent) => pressed.key === 'Escape' && end(false);
    grip.addEventListener('pointermove', move);
    grip.addEventListener('pointerup', () => end(at.current !== null), { once: true });
    grip.addEventListener('pointercancel', () => end(false), { once: true });
    addEventListener('keydown', escape, true);
  };

  const kindOf = (index: number) => {
    if (!state) return '';
    if (index === state.from) return 'dragged';
    if (index !== state.to) return '';
    return state.to < state.from ? 'drop-above' : 'drop-below';
  };
  return { start, kindOf };
}

export function Grip({ drag, index }: { drag: Drag; index: number }) {
  return (
    <span
      class="handle"
      title="Drag to reorder (Shift+K, Shift+J)"
      aria-hidden="true"
      onPointerDown={(event) => drag.start(event, index)}
    >
      ⠿
    </span>
  );
}
