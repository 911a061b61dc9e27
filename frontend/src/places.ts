// The state of each entry of the browser history: scroll position, focused row, and the data that a
// screen had loaded. Going back restores it; a new entry starts with the focus on the heading.

interface Place {
  y: number;
  /** The row that had the focus. */
  row: { table: string; id: string } | null;
  /** Data that screens keep for the next time they are shown. */
  kept: Record<string, unknown>;
}

const RESTORE_MS = 3000; // how long to wait for a screen to reach its former height
const MAX_PLACES = 30; // lists can be long
const places = new Map<number, Place>();
let here: Place = blank();
let newest = 0;
let focusHeadingNext = false;
let scrollTarget: { y: number; until: number } | null = null;

function blank(): Place {
  return { y: 0, row: null, kept: {} };
}

/** The data kept for this history entry; screens read and write it. */
export const keptData = () => here.kept;

/** Save the focused row; must be called before the old screen is removed. */
export function savePlace(): void {
  const row = document.activeElement?.closest<HTMLElement>('tr[data-id]');
  const table = row?.closest('table')?.getAttribute('aria-label');
  here.row = row && table ? { table, id: row.dataset.id! } : null;
}

/** Switch to the current history entry. `isSameScreen`: only the query changed. */
export function enterPlace(isSameScreen: boolean): void {
  const number: unknown = history.state?.place;
  const known = typeof number === 'number' ? places.get(number) : undefined;
  if (known) {
    here = known;
  } else {
    here = blank();
    newest = Math.max(newest + 1, Date.now()); // unique after a reload, too
    places.set(newest, here);
    if (places.size > MAX_PLACES) places.delete(places.keys().next().value!);
    history.replaceState({ place: newest }, '');
  }
  if (isSameScreen && !known) return;
  focusHeadingNext = !known?.row;
  scrollTarget = { y: here.y, until: Date.now() + RESTORE_MS };
  requestAnimationFrame(restoreScroll);
}

/** Scroll to the saved position once the document is tall enough, unless the user scrolls first. */
function restoreScroll(): void {
  if (!scrollTarget) return;
  const { y, until } = scrollTarget;
  const isLongEnough = document.documentElement.scrollHeight - innerHeight >= y - 1;
  if (isLongEnough || Date.now() > until) {
    scrollTarget = null;
    scrollTo(0, y);
  } else {
    requestAnimationFrame(restoreScroll);
  }
}

export function trackScrolling(): void {
  history.scrollRestoration = 'manual';
  addEventListener(
    'scroll',
    () => {
      if (!scrollTarget) here.y = scrollY;
    },
    { passive: true },
  );
  for (const kind of ['wheel', 'touchmove', 'keydown'])
    addEventListener(kind, () => (scrollTarget = null), { passive: true });
}

/** The id of the row to focus in this table, or null; returns an id only once. */
export function rowToFocus(table: string): string | null {
  const row = here.row;
  if (row?.table !== table) return null;
  here.row = null;
  return row.id;
}

/** Whether the next heading takes the focus; returns true only once. */
export function shouldFocusHeading(): boolean {
  const shouldFocus = focusHeadingNext;
  focusHeadingNext = false;
  return shouldFocus;
}
