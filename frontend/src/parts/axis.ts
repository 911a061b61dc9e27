// Chart axes: the place of a value on a linear or logarithmic axis, zooming, panning and tick values.
import { bytes, duration, value } from '../format';

export type Range = [number, number];

export interface Scale {
  from: number;
  to: number;
  isLog: boolean;
}

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

/** The ends of an axis with given limits; `least` is a lower bound for its upper end. */
export interface Limits {
  fromZero?: boolean;
  max?: number;
  least?: number;
}

export function span(low: number, high: number, { fromZero, max, least }: Limits): Range {
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  return [
    fromZero ? Math.min(0, low) : low - room,
    max ?? Math.max(least ?? -Infinity, high + room),
  ];
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

const SECONDS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400,
  172_800, 604_800,
];
const ROUND_TIMES = [0.1, 1, 10, 60, 600, 3600, 36_000, 86_400, 864_000]; // ticks of a log axis

/**
 * About `wanted` round values between low and high. The units that have values of their own: bytes in powers
 * of 1024, `duration` in seconds, `clock` in seconds since 1970, at full minutes, hours or days of local time.
 */
export function ticks(low: number, high: number, wanted: number, unit?: string): number[] {
  if (!(high > low)) return [low];
  const rough = (high - low) / Math.max(1, wanted);
  let step = SECONDS.find((n) => n >= rough) ?? 604_800 * Math.ceil(rough / 604_800);
  if (unit !== 'clock' && (unit !== 'duration' || rough < 1)) {
    const unitSize =
      unit === 'bytes' ? 1024 ** Math.max(0, Math.floor(Math.log(high) / Math.log(1024))) : 1;
    const power = 10 ** Math.floor(Math.log10(rough / unitSize));
    step = ([1, 2, 5, 10].find((n) => n * power >= rough / unitSize) ?? 10) * power * unitSize;
  }
  const offset = unit === 'clock' ? new Date(low * 1000).getTimezoneOffset() * 60 : 0;
  const marks: number[] = [];
  const last = Math.min((high - offset) / step + 1e-9, (low - offset) / step + 50);
  for (let n = Math.ceil((low - offset) / step - 1e-9); n <= last; n++)
    // Multiplied rather than summed up, since 0.1 + 0.2 is not 0.3.
    marks.push(Number((n * step + offset).toPrecision(12)));
  return marks;
}

/** Tick values of a linear or log axis. */
export function ticksOf({ from, to, isLog }: Scale, wanted: number, unit?: string): number[] {
  const first = Math.floor(Math.log10(from));
  const last = Math.ceil(Math.log10(to));
  if (!isLog || Math.log10(to / from) < 1) return ticks(from, to, wanted, unit);
  if (unit === 'duration') return ROUND_TIMES.filter((x) => x >= from && x <= to);
  const digits = (last - first) * 3 <= wanted + 2 ? [1, 2, 5] : [1];
  const every = digits.length > 1 ? 1 : Math.ceil((last - first) / Math.max(1, wanted));
  const marks: number[] = [];
  for (let power = first; power <= last; power += every)
    for (const digit of digits) marks.push(Number(`${digit}e${power}`));
  return marks.filter((x) => x >= from * (1 - 1e-12) && x <= to * (1 + 1e-12));
}

/** The number of decimals that makes neighboring ticks distinct. */
export function digitsFor(marks: number[]): number | undefined {
  if (marks.length < 2) return undefined;
  return Math.max(0, Math.min(6, -Math.floor(Math.log10(marks[1]! - marks[0]!) + 1e-9)));
}

/** The text of a tick. Durations lose their trailing zeros: `2m`, not `2m00s`. */
export function tickText(x: number, unit: string | undefined, marks: number[] = []): string {
  if (unit === 'clock') return timeText(x, marks.at(-1)! - marks[0]!);
  if (unit !== 'duration') return inUnit(unit, x, digitsFor(marks));
  if (x === 0) return '0';
  if (x < 1) return `${value(x)}s`;
  return duration(x)
    .replace(/^(\d+)\.0s$/, '$1s')
    .replace(/(?<=[mhd])00[smh]$/, '');
}

/** A time on an axis of `span` seconds. */
export function timeText(at: number, span: number): string {
  const date = new Date(at * 1000);
  const two = (n: number) => String(n).padStart(2, '0');
  const time = `${two(date.getHours())}:${two(date.getMinutes())}`;
  if (span < 300) return `${time}:${two(date.getSeconds())}`;
  return span > 2 * 86_400 ? `${two(date.getMonth() + 1)}-${two(date.getDate())}` : time;
}

export function inUnit(
  unit: string | undefined,
  x: number | null | undefined,
  digits?: number,
): string {
  if (x === null || x === undefined) return '–';
  if (unit === 'bytes') return bytes(x);
  if (unit === 'seconds') return duration(x);
  const sign = { percent: '%', '%': '%', watts: ' W', W: ' W', celsius: ' °C', C: ' °C' }[
    unit ?? ''
  ];
  // Small values need decimals: 0.4% must not become 0%.
  return sign ? `${x.toFixed(digits ?? (x !== 0 && Math.abs(x) < 10 ? 1 : 0))}${sign}` : value(x);
}
