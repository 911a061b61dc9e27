// Filter, order and columns of a table are in the address, so that a link shows the same table. The
// chosen columns are also remembered in this browser.
import { replace, route } from './route';

const KEY = 'stoker-columns-';

function remembered(table: string): string[] | null {
  try {
    const names: unknown = JSON.parse(localStorage.getItem(KEY + table) ?? 'null');
    return Array.isArray(names) && names.every((one) => typeof one === 'string') && names.length
      ? names
      : null;
  } catch {
    return null;
  }
}

function remember(table: string, names: string[] | null): void {
  try {
    if (names) localStorage.setItem(KEY + table, JSON.stringify(names));
    else localStorage.removeItem(KEY + table);
  } catch {
    // private windows may have no storage
  }
}

export interface TableState {
  where: string;
  /** Empty: the default order. */
  sort: string;
  /** Null: the default columns. */
  columns: string[] | null;
}

/** The state of a table; `table` is the name under which its columns are remembered. */
export function tableState(table: string): TableState {
  const { query } = route.value;
  const inAddress = query.getAll('col');
  return {
    where: query.get('where') ?? '',
    sort: query.get('sort') ?? '',
    columns: inAddress.length ? inAddress : remembered(table),
  };
}

function hash(query: URLSearchParams): string {
  const text = query.toString();
  return `${location.hash.split('?')[0] || '#/'}${text ? `?${text}` : ''}`;
}

/** Change parts of the address; an empty text removes one. */
export function setInAddress(changes: Record<string, string>): void {
  const query = new URLSearchParams(route.peek().query);
  for (const [name, text] of Object.entries(changes))
    if (text) query.set(name, text);
    else query.delete(name);
  replace(hash(query));
}

export function setColumns(table: string, names: string[] | null): void {
  remember(table, names);
  const query = new URLSearchParams(route.peek().query);
  query.delete('col');
  for (const name of names ?? []) query.append('col', name);
  replace(hash(query));
}

/** The address of this screen with everything that decides what the table shows. */
export function linkOf(columns: string[], sort: string): string {
  const query = new URLSearchParams(route.peek().query);
  query.delete('col');
  for (const name of columns) query.append('col', name);
  if (sort) query.set('sort', sort);
  return `${location.origin}${location.pathname}${hash(query)}`;
}

/** The order after a click on a heading: one way, the other way, then the default. */
export function nextSort(sort: string, name: string, isDownFirst: boolean): string {
  const ways = isDownFirst ? [`-${name}`, name] : [name, `-${name}`];
  const place = ways.indexOf(sort);
  return place < 0 ? ways[0]! : (ways[place + 1] ?? '');
}
