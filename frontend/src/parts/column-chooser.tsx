// The dialog that chooses the columns of a table.
import { useState } from 'preact/hooks';
import type { TableColumn } from '../types';
import { visible } from '../words';
import { ask } from './dialog';

const GROUPS: [kind: string, title: string][] = [
  ['param', 'Parameters'],
  ['metric', 'Metrics'],
  ['job', 'Job'],
];

/** Ask for columns; returns their names in order, or null if the user goes back. */
export async function chooseColumns(
  all: TableColumn[],
  chosen: string[],
  standard: string[],
): Promise<string[] | null> {
  const state = { names: [...chosen] };
  const answer = await ask({
    title: 'Columns',
    body: <Chooser all={all} state={state} standard={standard} />,
    yes: 'Show',
  });
  return answer ? state.names : null;
}

function Chooser({
  all,
  state,
  standard,
}: {
  all: TableColumn[];
  state: { names: string[] };
  standard: string[];
}) {
  const [names, setNames] = useState(state.names);
  const [wanted, setWanted] = useState('');
  const set = (next: string[]) => setNames((state.names = next));
  const move = (name: string, step: number) => {
    const next = names.filter((one) => one !== name);
    next.splice(Math.max(0, names.indexOf(name) + step), 0, name);
    set(next);
  };
  const matching = all.filter((one) => one.name.toLowerCase().includes(wanted.toLowerCase()));
  return (
    <div class="chooser">
      <input
        type="search"
        aria-label="Find a column"
        placeholder="Find a column"
        value={wanted}
        autofocus
        onInput={(event) => setWanted(event.currentTarget.value)}
        onKeyDown={(event) => event.key === 'Enter' && event.preventDefault()}
      />
      <div class="chooser-lists">
        <fieldset>
          <legend>Shown, in this order</legend>
          {names.map((name, place) => (
            <div class="chosen" key={name}>
              <span class="cut">{visible(name)}</span>
              <button
                type="button"
                class="icon"
                aria-label={`Move ${visible(name)} left`}
                disabled={place === 0}
                onClick={() => move(name, -1)}
              >
                ↑
              </button>
              <button
                type="button"
                class="icon"
                aria-label={`Move ${visible(name)} right`}
                disabled={place === names.length - 1}
                onClick={() => move(name, 1)}
              >
                ↓
              </button>
              <button
                type="button"
                class="icon"
                aria-label={`Hide ${visible(name)}`}
                disabled={names.length === 1}
                onClick={() => set(names.filter((one) => one !== name))}
              >
                ×
              </button>
            </div>
          ))}
          <button type="button" class="link" onClick={() => set([...standard])}>
            Default columns
          </button>
        </fieldset>
        <div>
          {GROUPS.map(([kind, title]) => {
            const found = matching.filter((one) => one.kind === kind);
            return (
              found.length > 0 && (
                <fieldset key={kind}>
                  <legend>{title}</legend>
                  {found.map((one) => (
                    <label class="check" key={one.name} title={one.words}>
                      <input
                        type="checkbox"
                        checked={names.includes(one.name)}
                        onClick={() =>
                          set(
                            names.includes(one.name)
                              ? names.length > 1
                                ? names.filter((other) => other !== one.name)
                                : names
                              : [...names, one.name],
                          )
                        }
                      />
                      <span class="cut">{visible(one.name)}</span>
                    </label>
                  ))}
                </fieldset>
              )
            );
          })}
        </div>
      </div>
    </div>
  );
}
