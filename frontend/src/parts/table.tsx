// A virtual table: only rows near the visible area are rendered. All rows have the same height, the
// document scrolls, and rows are keyed by id, so the focused row survives updates.
import type { ComponentChild } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { rowToFocus } from '../places';
import { isPhone } from '../theme';
import { Grip, useDrag } from './drag';

export interface Column<T> {
  name: string;
  head: string;
  cell(row: T, index: number): ComponentChild;
  /** CSS classes: `num` aligns right, `wide` takes the remaining width, `p-…` is the place on a phone. */
  kind?: string;
  /** Pixels, or a CSS width such as `38%`. */
  width?: number | string;
  sort?: boolean;
}

export interface TableProps<T> {
  label: string;
  rows: T[];
  columns: Column<T>[];
  id(row: T): number;
  /** The link of a row. */
  href?(row: T): string;
  onKey?(row: T, event: KeyboardEvent): boolean;
  onEnd?(): void;
  /** Called when other rows become visible. */
  onRange?(first: number, last: number): void;
  sort?: string;
  onSort?(name: string): void;
  selected?: Set<number>;
  onSelect?(id: number, isRange: boolean): void;
  onSelectAll?(): void;
  onDrop?(from: number, to: number): void;
  /** Whether a row can be moved. */
  canMove?(row: T): boolean;
  rowKind?(row: T): string;
  total?: number;
  /** Row height on a phone, if not the default. */
  phoneHeight?: number;
}

const MARGIN = 12; // rows rendered above and below the visible ones
const tables: {
  focusRow(index: number): boolean;
  length(): number;
  place(): number;
  node(): HTMLElement | null;
}[] = [];

/** Move the focus by `step` rows, across all tables of the screen (keys j and k). */
export function moveFocus(step: number): void {
  const shown = tables.filter((table) => table.length());
  shown.sort((a, b) => (a.node()!.compareDocumentPosition(b.node()!) & 4 ? -1 : 1));
  const at = shown.findIndex((table) => table.node()?.contains(document.activeElement));
  if (at < 0) {
    const first = shown.find((table) => table.place() >= 0) ?? shown[0];
    first?.focusRow(Math.max(0, first.place()));
    return;
  }
  const here = shown[at]!;
  if (here.focusRow(here.place() + step)) return;
  const next = shown[at + step];
  next?.focusRow(step > 0 ? 0 : next.length() - 1);
}

export function Table<T>(props: TableProps<T>) {
  const { rows, columns, id, href, selected } = props;
  const height = isPhone.value ? (props.phoneHeight ?? 58) : 32;
  const table = useRef<HTMLTableElement>(null);
  const body = useRef<HTMLTableSectionElement>(null);
  const [range, setRange] = useState<[number, number]>([0, 40]);
  const place = useRef(-1);
  const wanted = useRef(-1);
  const length = useRef(rows.length);
  length.current = rows.length;
  const drag = useDrag(body, height, rows.length, props.onDrop);

  useEffect(() => {
    let frame = 0;
    const measure = () => {
      frame = 0;
      const top = body.current?.getBoundingClientRect().top ?? 0;
      const first = Math.max(0, Math.floor(-top / height) - MARGIN);
      // Negative if the table is far below the visible area.
      const last = Math.max(0, Math.ceil((innerHeight - top) / height)) + MARGIN;
      setRange((old) => (old[0] === first && old[1] === last ? old : [first, last]));
      if (last >= length.current) props.onEnd?.();
    };
    const schedule = () => (frame ||= requestAnimationFrame(measure));
    measure();
    addEventListener('scroll', schedule, { passive: true });
    addEventListener('resize', schedule);
    return () => {
      cancelAnimationFrame(frame);
      removeEventListener('scroll', schedule);
      removeEventListener('resize', schedule);
    };
  }, [height, rows.length, props.onEnd]);

  useEffect(() => props.onRange?.(range[0], range[1]), [range, props.onRange]);

  // After going back, focus the row that was opened.
  useLayoutEffect(() => {
    const wantedId = rowToFocus(props.label);
    const index = wantedId === null ? -1 : rows.findIndex((row) => String(id(row)) === wantedId);
    if (index < 0) return;
    place.current = wanted.current = index;
    setRange([Math.max(0, index - 2 * MARGIN), index + 4 * MARGIN]);
  }, []);

  useEffect(() => {
    const handle = {
      length: () => length.current,
      place: () => place.current,
      node: () => table.current,
      focusRow: (index: number) => {
        if (index < 0 || index >= length.current) return false;
        wanted.current = index;
        const top = (body.current?.getBoundingClientRect().top ?? 0) + index * height;
        if (top < 96) scrollBy(0, top - 96);
        else if (top + height > innerHeight - 64) scrollBy(0, top + height - innerHeight + 64);
        setRange(([first, last]) => [Math.min(first, index), Math.max(last, index + 1)]);
        focusWanted();
        return true;
      },
    };
    tables.push(handle);
    return () => void tables.splice(tables.indexOf(handle), 1);
  }, [height]);

  const focusWanted = () => {
    if (wanted.current < 0) return;
    const row = body.current?.querySelector<HTMLElement>(`[data-at="${wanted.current}"]`);
    if (!row) return;
    wanted.current = -1;
    row.focus({ preventScroll: true });
  };
  useLayoutEffect(focusWanted);

  // A row that moves or disappears loses the focus. Focus the same row again, or else the row that is
  // now in its position.
  const focused = useRef<number | null>(null);
  const oldRows = useRef(rows);
  useLayoutEffect(() => {
    const isOther = oldRows.current !== rows;
    oldRows.current = rows;
    if (focused.current === null || document.activeElement !== document.body) return;
    const find = (what: string) => body.current?.querySelector<HTMLElement>(what);
    const row =
      find(`[data-id="${focused.current}"]`) ??
      (isOther ? find(`[data-at="${Math.min(place.current, rows.length - 1)}"]`) : null);
    row?.focus({ preventScroll: true });
  });

  const first = Math.min(range[0], Math.max(0, rows.length - 1));
  const last = Math.min(range[1], rows.length);
  const space = (size: number, key: string) =>
    size > 0 && (
      <tr key={key} class="space" aria-hidden="true" style={{ height: `${size}px` }}>
        <td
          colSpan={columns.length + (props.onDrop ? 1 : 0) + (props.onSelect ? 1 : 0)}
          style={{ height: `${size}px` }}
        />
      </tr>
    );

  const onKeyDown = (event: KeyboardEvent, row: T, index: number) => {
    if (event.target !== event.currentTarget || event.ctrlKey || event.metaKey || event.altKey)
      return;
    const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
    place.current = index;
    if (step) moveFocus(step);
    else if (event.key === 'Enter' && href) location.hash = href(row);
    else if (('xX'.includes(event.key) || event.key === ' ') && props.onSelect)
      props.onSelect(id(row), event.shiftKey);
    else if (!props.onKey?.(row, event)) return;
    event.preventDefault();
  };

  return (
    <table
      ref={table}
      class={props.onSelect ? 'grid picks' : 'grid'}
      style={{ '--row': `${height}px` }}
      aria-label={props.label}
      aria-rowcount={(props.total ?? rows.length) + 1}
    >
      <colgroup>
        {props.onDrop && <col style={{ width: '24px' }} />}
        {props.onSelect && <col style={{ width: '30px' }} />}
        {columns.map((column) => (
          <col
            key={column.name}
            style={{ width: typeof column.width === 'number' ? `${column.width}px` : column.width }}
          />
        ))}
      </colgroup>
      <thead>
        <tr>
          {props.onDrop && (
            <th>
              <span class="visually-hidden">Move</span>
            </th>
          )}
          {props.onSelect && (
            <th class="pick">
              <label>
                <span class="visually-hidden">Select all</span>
                <input
                  type="checkbox"
                  checked={rows.length > 0 && rows.every((row) => selected?.has(id(row)))}
                  indeterminate={
                    Boolean(selected?.size) && !rows.every((row) => selected?.has(id(row)))
                  }
                  onClick={() => props.onSelectAll?.()}
                />
              </label>
            </th>
          )}
          {columns.map((column) => (
            <th
              key={column.name}
              class={column.kind}
              scope="col"
              aria-sort={sortOf(props.sort, column.name)}
            >
              {column.sort && props.onSort ? (
                <button class="head" onClick={() => props.onSort?.(column.name)}>
                  {column.head}
                </button>
              ) : (
                column.head
              )}
            </th>
          ))}
        </tr>
      </thead>
      <tbody ref={body}>
        {space(first * height, 'above')}
        {rows.slice(first, last).map((row, offset) => {
          const index = first + offset;
          const key = id(row);
          const isSelected = selected?.has(key) ?? false;
          return (
            <tr
              key={key}
              data-at={index}
              data-id={key}
              tabIndex={index === Math.max(0, place.current) ? 0 : -1}
              aria-rowindex={index + 2}
              class={`${props.rowKind?.(row) ?? ''} ${isSelected ? 'selected' : ''} ${drag.kindOf(index)}`}
              onFocus={() => {
                place.current = index;
                focused.current = key;
              }}
              onBlur={(event) => {
                const row = event.currentTarget;
                setTimeout(
                  () =>
                    row.isConnected &&
                    focused.current === key &&
                    document.activeElement !== row &&
                    (focused.current = null),
                );
              }}
              onKeyDown={(event) => onKeyDown(event, row, index)}
              onClick={(event) => {
                // A click opens the row, unless it hits a control or selects text.
                if (
                  href &&
                  !(event.target as Element).closest('a, button, input, label') &&
                  !getSelection()?.toString()
                )
                  location.hash = href(row);
              }}
            >
              {props.onDrop && (
                <td class="grip p-hide">
                  {(props.canMove?.(row) ?? true) && <Grip drag={drag} index={index} />}
                </td>
              )}
              {props.onSelect && (
                <td class="pick p-pick">
                  <label>
                    <span class="visually-hidden">Select {key}</span>
                    <input
                      type="checkbox"
                      tabIndex={-1}
                      checked={isSelected}
                      onClick={(event) => props.onSelect?.(key, event.shiftKey)}
                    />
                  </label>
                </td>
              )}
              {columns.map((column) => (
                <td key={column.name} class={column.kind}>
                  {column.cell(row, index)}
                </td>
              ))}
            </tr>
          );
        })}
        {space((rows.length - last) * height, 'below')}
      </tbody>
    </table>
  );
}

function sortOf(sort: string | undefined, name: string): 'ascending' | 'descending' | undefined {
  if (sort === name) return 'ascending';
  return sort === `-${name}` ? 'descending' : undefined;
}
