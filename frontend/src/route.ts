// Where we are is in the hash, filters too: a link shows what its sender saw, and the server needs
// one page only.
import { signal } from '@preact/signals';
import { keepPlace, turnTo } from './places';

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

export function href(path: (string | number)[], query?: URLSearchParams | Record<string, string>): string {
  const text = new URLSearchParams(query).toString();
  return `#/${path.map(encodeURIComponent).join('/')}${text ? `?${text}` : ''}`;
}

export const route = signal<Route>(parse(location.hash));

export function follow(): void {
  turnTo(true);
  addEventListener('hashchange', () => {
    keepPlace(); // what is on the page is still the old screen
    const old = route.value.path.join('/');
    const next = parse(location.hash);
    turnTo(next.path.join('/') === old);
    route.value = next;
  });
}

export function go(to: string): void {
  location.hash = to;
}

/** Change the address without a step in the history, for filters that are being typed. */
export function replace(to: string): void {
  history.replaceState(history.state, '', to);
  route.value = parse(location.hash);
}

export const jobHref = (id: number) => href(['jobs', id]);
export const logHref = (id: number) => href(['jobs', id, 'log']);
export const sweepHref = (name: string) => href(['sweeps', name]);
