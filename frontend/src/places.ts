// Each step of the browser's history remembers where its reader was: how far down, on which row,
// and what a screen had loaded by then. Going back leads there; going on begins at the heading.

interface Place {
  y: number;
  /** The row that had the focus. */
  row: { table: string; id: string } | null;
  /** What screens keep for when they are shown again. */
  kept: Record<string, unknown>;
}

const PATIENCE = 3000; // how long a screen may take to become as long as it was
const MOST = 30; // steps that are remembered; lists can be long
const places = new Map<number, Place>();
let here: Place = blank();
let newest = 0;
let wantsHeading = false;
let goal: { y: number; until: number } | null = null;

function blank(): Place {
  return { y: 0, row: null, kept: {} };
}

/** What this step of the history keeps; written to by screens. */
export const kept = () => here.kept;

/** Called while the screen that is left can still be seen. */
export function keepPlace(): void {
  const row = document.activeElement?.closest<HTMLElement>('tr[data-id]');
  const table = row?.closest('table')?.getAttribute('aria-label');
  here.row = row && table ? { table, id: row.dataset.id! } : null;
}

/** Another step of the history is shown from now on. `isSame`: it is the same screen. */
export function turnTo(isSame: boolean): void {
  const number: unknown = history.state?.place;
  const known = typeof number === 'number' ? places.get(number) : undefined;
  if (known) {
    here = known;
  } else {
    here = blank();
    newest = Math.max(newest + 1, Date.now()); // a reloaded page must not meet its old numbers
    places.set(newest, here);
    if (places.size > MOST) places.delete(places.keys().next().value!);
    history.replaceState({ place: newest }, '');
  }
  if (isSame && !known) return;
  wantsHeading = !known?.row;
  goal = { y: here.y, until: Date.now() + PATIENCE };
  requestAnimationFrame(approach);
}

/** Scroll to where the reader was as soon as the page is long enough, unless they scroll first. */
function approach(): void {
  if (!goal) return;
  const { y, until } = goal;
  const isLongEnough = document.documentElement.scrollHeight - innerHeight >= y - 1;
  if (isLongEnough || Date.now() > until) {
    goal = null;
    scrollTo(0, y);
  } else {
    requestAnimationFrame(approach);
  }
}

export function watch(): void {
  history.scrollRestoration = 'manual';
  addEventListener('scroll', () => {
    if (!goal) here.y = scrollY;
  }, { passive: true });
  for (const kind of ['wheel', 'touchmove', 'keydown']) addEventListener(kind, () => (goal = null), { passive: true });
}

/** The row of this table that the reader came from; told once. */
export function rowToFocus(table: string): string | null {
  const row = here.row;
  if (row?.table !== table) return null;
  here.row = null;
  return row.id;
}

/** Whether a heading that appears now is to have the focus; told once. */
export function takesFocus(): boolean {
  const takes = wantsHeading;
  wantsHeading = false;
  return takes;
}
