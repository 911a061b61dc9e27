// Axes: the place of a value on a linear or logarithmic axis, zooming, panning and tick values.
import { duration, value } from '../format';
import { ticks } from '../parts/ticks';

export type Range = [number, number];

export interface Scale {
  from: number;
  to: number;
  isLog: boolean;
}

const SECONDS = [
  1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400,
];

const ROUND_TIMES = [0.1, 1, 10, 60, 600, 3600, 36_000, 86_400, 864_000]; // ticks of a log axis

/** The place of a value: 0 at the start of the axis, 1 at its end. Not finite below 0 on a log axis. */
export function placeOf({ from, to, isLog }: Scale, x: number): number {
  if (!isLog) return (x - from) / (to - from);
  return (Math.log10(x) - Math.log10(from)) / (Math.log10(to) - Math.log10(from));
}

/** The value at a place. */
export function valueAt({ from, to, isLog }: Scale, place: number): number {
  if (!isLog) return from + place * (to - from);
  return 10 ** (Math.log10(from) + place * (Math.log10(to) - Math.log10(from)));
}

/** An axis around the values, with a margin of `margin` of its length at both ends. */
export function scaleFor(range: Range | null, isLog: boolean, margin: number): Scale {
  let [from, to] = range ?? (isLog ? [1, 10] : [0, 1]);
  if (isLog) {
    if (from === to) [from, to] = [from / 2, to * 2];
    const factor = (to / from) ** margin;
    return { from: from / factor, to: to * factor, isLog };
  }
  if (from === to) {
    const room = margin ? Math.abs(from) / 10 || 1 : 1;
    return { from: margin ? from - room : from, to: to + room, isLog };
  }
  const room = (to - from) * margin;
  return { from: from - room, to: to + room, isLog };
}

/** The part of an axis between two places, within the whole axis; null for the whole axis. */
export function part(scale: Scale, first: number, last: number, whole: Scale): Range | null {
  const from = Math.max(whole.from, valueAt(scale, Math.min(first, last)));
  const to = Math.min(whole.to, valueAt(scale, Math.max(first, last)));
  if (!(to > from)) return [scale.from, scale.to];
  const covers = placeOf(whole, to) - placeOf(whole, from);
  return covers > 0.999 ? null : [from, to];
}

/** Zoom by `factor` (below 1: closer) around a place. */
export function zoomed(scale: Scale, place: number, factor: number, whole: Scale): Range | null {
  return part(scale, place - place * factor, place + (1 - place) * factor, whole);
}

/** Move by `distance` (1: the length of the axis), without leaving the whole axis. */
export function panned(scale: Scale, distance: number, whole: Scale): Range {
  const least = placeOf(scale, whole.from);
  const most = placeOf(scale, whole.to) - 1;
  const step = Math.max(Math.min(least, 0), Math.min(Math.max(most, 0), distance));
  return [valueAt(scale, step), valueAt(scale, 1 + step)];
}

/** Tick values of a linear or log axis; `isTime`: seconds in round units. */
export function ticksOf({ from, to, isLog }: Scale, wanted: number, isTime = false): number[] {
  if (isLog) {
    const decades = Math.log10(to) - Math.log10(from);
    if (decades >= 1 && isTime) return ROUND_TIMES.filter((x) => x >= from && x <= to);
    if (decades >= 1) return logTicks(from, to, wanted);
  }
  if (!isTime) return ticks(from, to, wanted);
  const rough = (to - from) / Math.max(1, wanted);
  const step = SECONDS.find((n) => n >= rough) ?? 86_400 * Math.ceil(rough / 86_400);
  if (rough < 1) return ticks(from, to, wanted);
  const found: number[] = [];
  for (let x = Math.ceil(from / step) * step; x <= to && found.length < 50; x += step)
    found.push(x);
  return found;
}

function logTicks(from: number, to: number, wanted: number): number[] {
  const first = Math.floor(Math.log10(from));
  const last = Math.ceil(Math.log10(to));
  const digits = (last - first) * 3 <= wanted + 2 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil((last - first) / Math.max(1, wanted)));
  const found: number[] = [];
  for (let power = first; power <= last; power++) {
    if ((power - first) % every && digits.length === 1) continue;
    for (const digit of digits) {
      const x = Number(`${digit}e${power}`);
      if (x >= from * (1 - 1e-12) && x <= to * (1 + 1e-12)) found.push(x);
    }
  }
  return found;
}

/** The text of a tick. Durations lose their trailing zeros: `2m`, not `2m00s`. */
export function tickText(x: number, isTime: boolean): string {
  if (!isTime) return value(x);
  if (x === 0) return '0';
  if (x < 1) return `${value(x)}s`;
  return duration(x)
    .replace(/^(\d+)\.0s$/, '$1s')
    .replace(/(?<=[mhd])00[smh]$/, '');
}
