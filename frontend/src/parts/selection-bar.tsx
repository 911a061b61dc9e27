// The bar with the number of selected runs, at the bottom of every screen.
import { count } from '../format';
import { route } from '../route';
import { clearSelection, compareHref, selection } from '../selection';

const MAX_RUNS = 200; // of one comparison; the address must stay usable

export function SelectionBar() {
  const runs = selection.value;
  if (!runs.length || route.value.path[0] === 'compare') return null;
  return (
    <div class="selection-bar" role="group" aria-label="Selected runs">
      <b class="num">{count(runs.length)} selected</b>
      {runs.length > MAX_RUNS ? (
        <span>at most {count(MAX_RUNS)} can be compared</span>
      ) : (
        <a class="button primary" href={compareHref(runs)}>
          Compare
        </a>
      )}
      <button onClick={clearSelection}>Clear</button>
    </div>
  );
}
