// Dialogs that add values of parameters, or one trial, to a sweep. A dry run on the server says how many
// trials that adds.
import { useEffect, useRef, useState } from 'preact/hooks';
import { addToSweep, previewAdded } from '../actions';
import { ApiError } from '../api';
import { plural } from '../format';
import type { Got } from '../types';
import { useFetch } from '../use-fetch';
import { visible } from '../words';
import { ask } from './dialog';

type SweepForm = Got<'/api/sweeps/{name}/form'>;
type Texts = Record<string, string>;

const PREFIX = 'value of ';

const textsOf = (form: FormData): Texts =>
  Object.fromEntries(
    [...form.entries()]
      .filter(([name]) => name.startsWith(PREFIX))
      .map(([name, text]) => [name.slice(PREFIX.length), String(text).trim()])
      .filter(([, text]) => text),
  );

export const addValues = (name: string) =>
  ask({
    title: `Add values to ${visible(name)}`,
    body: <Fields name={name} isPoint={false} />,
    yes: 'Add',
    run: ({ form }) => addToSweep(name, textsOf(form), false),
  });

export const addPoint = (name: string) =>
  ask({
    title: `Add a trial to ${visible(name)}`,
    body: <Fields name={name} isPoint />,
    yes: 'Add trial',
    run: ({ form }) => addToSweep(name, textsOf(form), true),
  });

function Fields({ name, isPoint }: { name: string; isPoint: boolean }) {
  const { data, error } = useFetch<SweepForm>(`/api/sweeps/${encodeURIComponent(name)}/form`);
  const [texts, setTexts] = useState<Texts>({});
  const note = usePreview(name, texts, isPoint);
  const first = useRef<HTMLInputElement>(null);
  useEffect(() => first.current?.focus(), [data]);
  if (error) return <p class="bad-ink">{error.message}</p>;
  if (!data) return <p class="dim">Loading…</p>;
  return (
    <div class="add-values">
      <p class="dim">
        {isPoint
          ? 'One value for each parameter.'
          : 'New values for one or more parameters. Existing trials do not run again.'}
      </p>
      {data.parameters.map((one, i) => (
        <label key={one.name} class="field">
          <span class="mono">{visible(one.name)}</span>
          <input
            name={PREFIX + one.name}
            class="mono"
            ref={i === 0 ? first : undefined}
            autocomplete="off"
            spellcheck={false}
            onInput={(event) =>
              setTexts({ ...texts, [one.name]: event.currentTarget.value.trim() })
            }
          />
          <small class="cut" title={visible(one.text)}>
            {isPoint ? 'values' : 'has'} <code>{visible(one.text)}</code>
            {one.when && `, used only if ${visible(one.when)}`}
          </small>
        </label>
      ))}
      <p role="status" class={note.isError ? 'bad-ink' : 'dim'}>
        {note.text}
        {note.commands.slice(0, 3).map((command) => (
          <code key={command} class="cut" title={visible(command)}>
            {visible(command)}
          </code>
        ))}
        {note.commands.length > 3 && '…'}
      </p>
    </div>
  );
}

interface Note {
  text: string;
  commands: string[];
  isError: boolean;
}

const NOTHING: Note = { text: '', commands: [], isError: false };

/** What the server says about the values, a moment after the last change. */
function usePreview(name: string, texts: Texts, isPoint: boolean): Note {
  const [note, setNote] = useState<Note>(NOTHING);
  const key = JSON.stringify(Object.entries(texts).filter(([, text]) => text));
  useEffect(() => {
    if (key === '[]') return setNote(NOTHING);
    let isOld = false;
    const timer = setTimeout(async () => {
      try {
        const { added, commands } = await previewAdded(name, JSON.parse(key), isPoint);
        const text = added ? `Adds ${plural(added, 'trial')}:` : 'All these trials already exist.';
        if (!isOld) setNote({ text, commands, isError: false });
      } catch (problem) {
        if (isOld || !(problem instanceof ApiError)) return;
        const text = problem.hint ? `${problem.message}; ${problem.hint}` : problem.message;
        setNote({ text, commands: [], isError: true });
      }
    }, 250);
    return () => {
      isOld = true;
      clearTimeout(timer);
    };
  }, [name, key, isPoint]);
  return note;
}
