// What was typed into the forms, kept for as long as the tab lives: looking something up on another
// screen, or at another form, loses nothing.
import { useState } from 'preact/hooks';

export type Values = Record<string, string>;

export interface Form {
  values: Values;
  set(name: string, value: string): void;
  /** It was submitted, or is to begin anew. */
  clear(): void;
  isChanged: boolean;
}

const drafts = new Map<string, Values>();

export function useForm(name: string, start: Values = {}): Form {
  const [values, setValues] = useState(() => drafts.get(name) ?? start);
  const take = (next: Values) => {
    drafts.set(name, next);
    setValues(next);
  };
  return {
    values,
    // Of what is kept rather than of what was drawn: two fields may change at once.
    set: (field, value) => take({ ...(drafts.get(name) ?? values), [field]: value }),
    clear: () => {
      drafts.delete(name);
      setValues(start);
    },
    isChanged: drafts.has(name),
  };
}
