// How the charts of a sweep or comparison are arranged. The address has everything, so that a link shows
// the same; the browser remembers the layout of each sweep.

export interface Layout {
  /** The metrics with a chart, in order; empty: those that the server chooses. */
  metrics: string[];
  x: 'step' | 'time';
  /** The factor of the exponential moving average, 0 (none) to 0.99. */
  smooth: number;
  /** The parameters to group by, separated by commas; empty: one line per run. */
  group: string;
  isLogX: boolean;
  /** The metrics whose y axis is logarithmic. */
  logY: string[];
  /** Charts per row; 0: as many as fit. */
  columns: number;
  /** The visible part of the x axis; null: all of it. */
  zoom: [number, number] | null;
  hidden: string[];
  /** The run that stands out; empty: none. */
  marked: string;
}

export const DEFAULT: Layout = {
  metrics: [],
  x: 'step',
  smooth: 0,
  group: '',
  isLogX: false,
  logY: [],
  columns: 0,
  zoom: null,
  hidden: [],
  marked: '',
};

const KEYS = ['metric', 'x', 'smooth', 'group', 'logx', 'logy', 'across', 'zoom', 'hide', 'mark'];
const STORE = 'stoker-chart-layouts';
const MAX_STORED = 100; // the newest layouts are kept

/** The parameters to group by. */
export const groupNames = (group: string) => group.split(',').filter(Boolean);

export const hasLayout = (query: URLSearchParams) => KEYS.some((key) => query.has(key));

export function layoutFrom(query: URLSearchParams): Layout {
  const zoom = (query.get('zoom') ?? '').split('_').map(Number);
  const smooth = Number(query.get('smooth') ?? 0);
  const columns = Number(query.get('across') ?? 0);
  return {
    metrics: [...new Set(query.getAll('metric'))],
    x: query.get('x') === 'time' ? 'time' : 'step',
    smooth: smooth > 0 && smooth <= 0.99 ? smooth : 0,
    group: query.get('group') ?? '',
    isLogX: query.get('logx') === '1',
    logY: [...new Set(query.getAll('logy'))],
    columns: [1, 2, 3].includes(columns) ? columns : 0,
    zoom:
      zoom.length === 2 && zoom.every(Number.isFinite) && zoom[0]! < zoom[1]!
        ? [zoom[0]!, zoom[1]!]
        : null,
    hidden: [...new Set(query.getAll('hide'))],
    marked: query.get('mark') ?? '',
  };
}

/** The same query with the keys of this layout; other keys stay as they are. */
export function withLayout(query: URLSearchParams, layout: Layout): URLSearchParams {
  const next = new URLSearchParams([...query].filter(([key]) => !KEYS.includes(key)));
  for (const name of layout.metrics) next.append('metric', name);
  if (layout.x === 'time') next.set('x', 'time');
  if (layout.smooth) next.set('smooth', String(layout.smooth));
  if (layout.group) next.set('group', layout.group);
  if (layout.isLogX) next.set('logx', '1');
  for (const name of layout.logY) next.append('logy', name);
  if (layout.columns) next.set('across', String(layout.columns));
  if (layout.zoom) next.set('zoom', layout.zoom.map((x) => Number(x.toPrecision(6))).join('_'));
  for (const run of layout.hidden) next.append('hide', run);
  if (layout.marked) next.set('mark', layout.marked);
  return next;
}

/** The remembered part as text: not the zoom and what is hidden, which belong to one look at the data. */
export function textOf(layout: Layout): string {
  return withLayout(new URLSearchParams(), {
    ...layout,
    zoom: null,
    hidden: [],
    marked: '',
  }).toString();
}

/** The remembered layout of a sweep, or null. */
export function storedLayout(name: string): Layout | null {
  const text = load().find(([key]) => key === name)?.[1];
  return text ? layoutFrom(new URLSearchParams(text)) : null;
}

export function storeLayout(name: string, layout: Layout): void {
  const text = textOf(layout);
  const others = load().filter(([key]) => key !== name);
  const all = text ? [...others, [name, text]] : others;
  try {
    localStorage.setItem(STORE, JSON.stringify(all.slice(-MAX_STORED)));
  } catch {
    // storage is blocked or full: the address still has the layout
  }
}

function load(): [string, string][] {
  try {
    const all: unknown = JSON.parse(localStorage.getItem(STORE) ?? '[]');
    if (!Array.isArray(all)) return [];
    return all.filter(
      (one) => Array.isArray(one) && typeof one[0] === 'string' && typeof one[1] === 'string',
    );
  } catch {
    return [];
  }
}
