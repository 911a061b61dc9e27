// Keyboard shortcuts: global ones, and those of the current screen.
import { useLayoutEffect } from 'preact/hooks';
import { go } from './route';

type Keys = Record<string, (event: KeyboardEvent) => void>;

const PLACES: Record<string, string> = {
  o: '#/',
  h: '#/history',
  s: '#/sweeps',
  g: '#/gpus',
  n: '#/submit',
};
const screens: Keys[] = [];
let isAfterG = false;

export function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || target.matches('input:not([type=checkbox]), textarea, select'))
  );
}

export function listen(globalKeys: Keys): void {
  addEventListener('pointerdown', () => (isAfterG = false));
  addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (document.querySelector('dialog[open]')) return;
    if (isTyping(event.target)) {
      if (event.key === 'Escape') (event.target as HTMLElement).blur();
      return;
    }
    if (
      event.key === 'Enter' &&
      event.target instanceof Element &&
      event.target.closest('a, button, summary')
    )
      return;
    const place = PLACES[event.key];
    // Without a time limit, because `h` and `s` alone change the job that has the focus.
    if (isAfterG && place) {
      isAfterG = false;
      go(place);
      event.preventDefault();
      return;
    }
    isAfterG = event.key === 'g';
    const run =
      [...screens].reverse().find((keys) => keys[event.key])?.[event.key] ?? globalKeys[event.key];
    if (run) {
      event.preventDefault();
      run(event);
    }
  });
}

/** Register shortcuts while the calling screen is mounted. */
export function useKeys(keys: Keys): void {
  // A layout effect: a key pressed right after the screen appears must not be lost.
  useLayoutEffect(() => {
    screens.push(keys);
    return () => void screens.splice(screens.indexOf(keys), 1);
  });
}
