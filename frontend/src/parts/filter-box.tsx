// The filter of a table, in the language of `--where`. The server completes it and finds its errors.
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, get, query } from '../api';
import { useKeys } from '../keys';
import type { Completion } from '../types';
import { visible } from '../words';

const COMPLETE_MS = 60;
const APPLY_MS = 350;

interface Props {
  /** The path of the table, e.g. `/api/history`; `/complete` is below it. */
  base: string;
  where: string;
  placeholder: string;
  error: ApiError | null;
  onWhere(where: string): void;
}

export function FilterBox({ base, where, placeholder, error, onWhere }: Props) {
  const input = useRef<HTMLInputElement>(null);
  const [text, setText] = useState(where);
  const [found, setFound] = useState<(Completion & { of: string }) | null>(null);
  const [active, setActive] = useState(-1);
  const timers = useRef({ complete: 0, apply: 0 });
  const applied = useRef(where);
  // Suggestions for an earlier text have other places to insert them.
  const isOpen = found !== null && found.of === text && found.suggestions.length > 0;
  const shownError = isOpen ? null : error; // what is being typed is not complete

  useEffect(() => {
    // Changed from outside: by a link, a group of failures, or the back button.
    if (where === applied.current) return;
    applied.current = where;
    setText(where);
  }, [where]);
  useEffect(
    () => () => {
      clearTimeout(timers.current.complete);
      clearTimeout(timers.current.apply);
    },
    [],
  );
  useKeys({ f: () => input.current?.focus() });

  const apply = (next: string) => {
    clearTimeout(timers.current.apply);
    applied.current = next.trim();
    onWhere(next.trim());
  };
  const close = () => {
    clearTimeout(timers.current.complete);
    setFound(null);
    setActive(-1);
  };
  const ask = (next: string, at: number) => {
    clearTimeout(timers.current.complete);
    timers.current.complete = window.setTimeout(() => {
      get<Completion>(`${base}/complete${query({ text: next || ' ', at: next ? at : 0 })}`).then(
        (answer) => {
          if (input.current !== document.activeElement || input.current?.value !== next) return;
          setFound({ ...answer, of: next });
        },
        () => undefined, // typing works without completion
      );
    }, COMPLETE_MS);
  };
  const type = (next: string, at: number) => {
    setText(next);
    setActive(-1);
    ask(next, at);
    clearTimeout(timers.current.apply);
    timers.current.apply = window.setTimeout(() => apply(next), APPLY_MS);
  };
  const accept = (place: number) => {
    const { start, end, suggestions } = found!;
    const inserted = suggestions[place]!.text;
    const rest = text.slice(end);
    const next = `${text.slice(0, start)}${inserted}${rest.startsWith(' ') ? '' : ' '}${rest}`;
    const at = start + inserted.length + 1;
    close();
    // At once, so that the next key is typed behind the inserted text.
    input.current!.value = next;
    input.current!.focus();
    input.current!.setSelectionRange(at, at);
    type(next, at);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
    if (step && !isOpen) {
      if (step > 0) ask(text, input.current?.selectionStart ?? text.length);
    } else if (step) {
      const size = found!.suggestions.length;
      setActive((old) => (old + step + (old < 0 && step < 0 ? 1 : 0) + size) % size);
    } else if (event.key === 'Enter') {
      if (isOpen && active >= 0) accept(active);
      else {
        close();
        apply(text);
      }
    } else if (event.key === 'Tab' && isOpen && active >= 0) accept(active);
    else if (event.key === 'Escape' && isOpen) close();
    else return;
    event.preventDefault();
  };

  return (
    <div class="filter-box">
      <label>
        <span>Filter</span>
        <input
          ref={input}
          type="search"
          role="combobox"
          aria-label="Filter"
          aria-expanded={isOpen}
          aria-controls="filter-suggestions"
          aria-autocomplete="list"
          aria-activedescendant={active >= 0 ? `filter-suggestion-${active}` : undefined}
          aria-invalid={shownError !== null}
          aria-describedby="filter-error"
          autocomplete="off"
          autocapitalize="off"
          spellcheck={false}
          maxLength={2000}
          placeholder={placeholder}
          value={text}
          onInput={(event) =>
            type(event.currentTarget.value, event.currentTarget.selectionStart ?? 0)
          }
          onKeyDown={onKeyDown}
          onBlur={() => {
            close();
            if (text.trim() !== applied.current) apply(text);
          }}
        />
      </label>
      {isOpen && (
        <ul id="filter-suggestions" role="listbox" aria-label="Suggestions">
          {found.suggestions.map((one, place) => (
            <li
              key={one.text}
              id={`filter-suggestion-${place}`}
              role="option"
              aria-selected={place === active}
              ref={(node) => {
                if (place === active) node?.scrollIntoView({ block: 'nearest' });
              }}
              onMouseDown={(event) => {
                event.preventDefault(); // keep the focus in the input
                accept(place);
              }}
            >
              <code>{visible(one.text)}</code>
              <span class="dim">{visible(one.note)}</span>
            </li>
          ))}
        </ul>
      )}
      <div id="filter-error" role="alert">
        {shownError && <FilterError error={shownError} text={applied.current} />}
      </div>
    </div>
  );
}

/** The error, below the text with the wrong part marked. */
function FilterError({ error, text }: { error: ApiError; text: string }) {
  const [start, end] = error.at ?? [0, 0];
  return (
    <div class="filter-error">
      {error.at && (
        <code>
          {visible(text.slice(0, start))}
          <mark>{visible(text.slice(start, end)) || ' '}</mark>
          {visible(text.slice(end))}
        </code>
      )}
      <p>
        <span class="bad-ink">{visible(error.message)}</span>
        {error.hint && <span class="dim"> {visible(error.hint)}</span>}
      </p>
    </div>
  );
}
