// The legend of all charts of a grid: hide a line, or keep it highlighted.
import type { Signal } from '@preact/signals';
import { jobHref } from '../route';
import { visible } from '../words';
import type { Hover } from '../parts/line-chart';
import type { Entry } from './lines';

export function Legend({
  entries,
  hidden,
  marked,
  hover,
  onHidden,
  onMark,
}: {
  entries: Entry[];
  hidden: ReadonlySet<string>;
  marked: string;
  hover: Signal<Hover | null>;
  onHidden(keys: string[]): void;
  onMark(key: string): void;
}) {
  const point = (key: string | null) =>
    (hover.value = key === null ? null : { chart: '', x: null, key, near: [] });
  const toggle = (key: string, isOnly: boolean) => {
    if (isOnly) return onHidden(entries.map((one) => one.key).filter((one) => one !== key));
    onHidden(hidden.has(key) ? [...hidden].filter((one) => one !== key) : [...hidden, key]);
  };
  const nHidden = entries.filter((one) => hidden.has(one.key)).length;
  const pointed = hover.value?.chart ? hover.value.key : null;
  return (
    <div class="legend" role="group" aria-label="Lines">
      <ul>
        {entries.map((one) => {
          const label = visible(one.label);
          const isHidden = hidden.has(one.key);
          return (
            <li
              key={one.key}
              class={`${isHidden ? 'off' : ''} ${one.key === marked ? 'marked' : ''} ${one.key === pointed ? 'lit' : ''}`}
              onPointerEnter={() => !isHidden && point(one.key)}
              onPointerLeave={() => point(null)}
            >
              <button
                class="swatch"
                aria-pressed={!isHidden}
                aria-label={`Show ${label}`}
                title={`${isHidden ? 'Show' : 'Hide'} ${label} (with Shift: show only this line)`}
                onClick={(event) => toggle(one.key, event.shiftKey)}
              >
                <i style={{ background: isHidden ? undefined : one.color }} />
              </button>
              <button
                class="name cut"
                aria-pressed={one.key === marked}
                title={`Highlight ${label}`}
                onFocus={() => !isHidden && point(one.key)}
                onBlur={() => point(null)}
                onClick={() => onMark(one.key === marked ? '' : one.key)}
              >
                {label}
                {one.detail && <span class="num dim"> {visible(one.detail)}</span>}
              </button>
              {one.key === marked && one.job !== null && (
                <a href={jobHref(one.job)} title={`Open job ${one.job}`}>
                  open
                </a>
              )}
            </li>
          );
        })}
      </ul>
      {nHidden > 0 && (
        <button class="link" onClick={() => onHidden([])}>
          Show all
        </button>
      )}
    </div>
  );
}
