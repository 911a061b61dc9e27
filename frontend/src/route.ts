// The route is in the URL fragment, including filters: links can be shared, and the server serves a
// single document.
import { signal } from '@preact/signals';
import { enterPlace, savePlace } from './places';

export interface Route {
  path: string[];
  query: URLSearchParams;
}

export function parse(hash: string): Route {
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split('?', 2);
  return { path: path.split('/').filter(Boolean).map(decode), query: new URLSearchParams(query) };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function href(
  path: (string | number)[],
  query?: URLSearchParams | Record<string, string>,
): string {
  const text = new URLSearchParams(query).toString();
  return `#/${path.map(encodeURIComponent).join('/')}${text ? `?${text}` : ''}`;
}

export const route = signal<Route>(parse(location.hash));

export function watchAddress(): void {
  enterPlace(true);
  addEventListener('hashchange', () => {
    savePlace(); // the old screen is still in the document
    const old = route.value.path.join('/');
    const next = parse(location.hash);
    enterPlace(next.path.join('/') === old);
    route.value = next;
  });
}

export function go(to: string): void {
  location.hash = to;
}

/** Change the address without a new history entry, e.g. while a filter is typed. */
export function replace(to: string): void {
  history.replaceState(history.state, '', to);
  route.value = parse(location.hash);
}

export const jobHref = (id: number) => href(['jobs', id]);
export const logHref = (id: number) => href(['jobs', id, 'log']);
export const sweepHref = (name: string) => href(['sweeps', name]);
