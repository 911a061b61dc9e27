// Light or dark theme: the system preference, unless the user chose one.
import { signal } from '@preact/signals';

type Choice = 'auto' | 'light' | 'dark';
const KEY = 'stoker-theme';

function stored(): Choice {
  try {
    const value = localStorage.getItem(KEY);
    return value === 'light' || value === 'dark' ? value : 'auto';
  } catch {
    return 'auto'; // storage may be blocked
  }
}

const system = matchMedia('(prefers-color-scheme: dark)');
export const choice = signal<Choice>(stored());
export const isDark = signal(false);
export const isPhone = signal(false);

function apply(): void {
  isDark.value = choice.value === 'auto' ? system.matches : choice.value === 'dark';
  document.documentElement.dataset.theme = isDark.value ? 'dark' : 'light';
}

export function watchSystem(): void {
  const narrow = matchMedia('(max-width: 720px)');
  isPhone.value = narrow.matches;
  narrow.addEventListener('change', () => (isPhone.value = narrow.matches));
  system.addEventListener('change', apply);
  apply();
}

export function toggle(): void {
  choice.value = isDark.value ? 'light' : 'dark';
  try {
    localStorage.setItem(KEY, choice.value);
  } catch {
    // storage is blocked: the choice lasts as long as the tab
  }
  apply();
}

/** The value of a CSS custom property, for drawing on a canvas. */
export const color = (name: string) =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
