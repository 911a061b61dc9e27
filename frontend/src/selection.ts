// The runs that are selected for a comparison: ids of jobs, names of sweeps, and SWEEP/TRIAL. The
// selection survives moving between screens, and a reload of the tab.
import { signal } from '@preact/signals';
import { useRef } from 'preact/hooks';
import { href } from './route';

const KEY = 'stoker-selection';

function stored(): string[] {
  try {
    const all: unknown = JSON.parse(sessionStorage.getItem(KEY) ?? '[]');
    return Array.isArray(all) ? all.filter((one) => typeof one === 'string') : [];
  } catch {
    return []; // storage may be blocked
  }
}

/** The selection in the order of selecting. */
export const selection = signal<readonly string[]>(stored());

export function select(runs: readonly string[]): void {
  selection.value = [...new Set(runs)];
  try {
    sessionStorage.setItem(KEY, JSON.stringify(selection.value));
  } catch {
    // storage is blocked: the selection lasts until a reload
  }
}

export const clearSelection = () => select([]);

/** Remove some runs. */
export const deselect = (runs: Iterable<string>) => {
  const gone = new Set(runs);
  select(selection.peek().filter((one) => !gone.has(one)));
};

/** The address of the comparison of these runs. */
export const compareHref = (runs: readonly string[]) =>
  href(['compare'], new URLSearchParams(runs.map((run) => ['runs', run])));

export const trialRun = (sweep: string, trial: number) => `${sweep}/${trial}`;

interface Selecting {
  selected: Set<number>;
  onSelect(id: number, isRange: boolean): void;
  onSelectAll(): void;
}

/** What a `Table` needs to select its rows; `runOf` is the word of a row in the selection. */
export function useSelecting<T>(
  rows: readonly T[],
  id: (row: T) => number,
  runOf: (row: T) => string,
): Selecting {
  const anchor = useRef<number | null>(null);
  const chosen = new Set(selection.value);
  const isChosen = (row: T) => chosen.has(runOf(row));
  const onSelect = (one: number, isRange: boolean) => {
    const to = rows.findIndex((row) => id(row) === one);
    const from = rows.findIndex((row) => id(row) === anchor.current);
    anchor.current = one;
    if (to < 0) return;
    if (isRange && from >= 0) {
      const range = rows.slice(Math.min(from, to), Math.max(from, to) + 1);
      select([...selection.peek(), ...range.map(runOf)]);
    } else if (isChosen(rows[to]!)) deselect([runOf(rows[to]!)]);
    else select([...selection.peek(), runOf(rows[to]!)]);
  };
  const onSelectAll = () => {
    if (rows.every(isChosen)) deselect(rows.map(runOf));
    else select([...selection.peek(), ...rows.map(runOf)]);
  };
  return { selected: new Set(rows.filter(isChosen).map(id)), onSelect, onSelectAll };
}
