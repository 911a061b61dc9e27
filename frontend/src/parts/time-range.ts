// The range of time that the timeline shows: the last hours, which move with the clock,
// or a fixed range that the user panned or zoomed to. It is part of the address.
import { href, replace, route } from '../route';

export interface Range {
  from: number;
  to: number;
}

export const HOURS = [
  { value: '1', label: '1 h' },
  { value: '6', label: '6 h' },
  { value: '24', label: '24 h' },
  { value: '168', label: '7 d' },
];
const LEAST = 60; // seconds
const MOST = 31 * 86_400;
const AHEAD = 0.25; // of the hours: the part of a live range that is a forecast

/** The hours of the tab; also those of the charts of each GPU. */
export function hoursOf(query: URLSearchParams): string {
  const hours = query.get('hours');
  return HOURS.some((one) => one.value === hours) ? hours! : '6';
}

/** The fixed range in the address; null: the range moves with the clock. */
export function fixedRange(query: URLSearchParams): Range | null {
  const from = Number(query.get('from'));
  const to = Number(query.get('to'));
  return from > 0 && to > from && to - from <= MOST ? { from, to } : null;
}

export function liveRange(hours: string, now: number): Range {
  const seconds = Number(hours) * 3600;
  return { from: now - seconds, to: now + seconds * AHEAD };
}

/** A range of at least a minute and at most 31 days that ends at most a week after now. */
export function limited(range: Range, now: number): Range {
  const length = Math.min(MOST, Math.max(LEAST, range.to - range.from));
  const middle = (range.from + range.to) / 2;
  const to = Math.min(now + 7 * 86_400, middle + length / 2);
  return { from: Math.max(1, to - length), to };
}

export const panned = ({ from, to }: Range, part: number): Range => ({
  from: from + (to - from) * part,
  to: to + (to - from) * part,
});

/** `factor` below 1 zooms in; the time `around` stays where it is. */
export const zoomed = ({ from, to }: Range, factor: number, around = (from + to) / 2): Range => ({
  from: around - (around - from) * factor,
  to: around + (to - around) * factor,
});

/** Show a fixed range, or with null the last hours. */
export function showRange(range: Range | null, hours = hoursOf(route.value.query)): void {
  const query = new URLSearchParams(route.value.query);
  query.set('hours', hours);
  for (const name of ['from', 'to'] as const) {
    if (range) query.set(name, String(Math.round(range[name])));
    else query.delete(name);
  }
  replace(href(route.value.path, query));
}
