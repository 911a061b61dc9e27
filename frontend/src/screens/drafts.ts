// Form drafts, kept in memory as long as the tab is open, so that switching screens or forms loses no
// input.
import { useState } from 'preact/hooks';

export type Values = Record<string, string>;

export interface Form {
  values: Values;
  set(name: string, value: string): void;
  /** Discard the draft, after submitting or on reset. */
  clear(): void;
  isChanged: boolean;
}

const drafts = new Map<string, Values>();

export function useForm(name: string, start: Values = {}): Form {
  const [values, setValues] = useState(() => drafts.get(name) ?? start);
  const save = (next: Values) => {
    drafts.set(name, next);
    setValues(next);
  };
  return {
    values,
    // Based on the saved draft, not the rendered values: two fields may change at once.
    set: (field, value) => save({ ...(drafts.get(name) ?? values), [field]: value }),
    clear: () => {
      drafts.delete(name);
      setValues(start);
    },
    isChanged: drafts.has(name),
  };
}
