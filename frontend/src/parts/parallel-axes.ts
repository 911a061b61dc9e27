// The axes of a parallel-coordinates chart, and the ranges that are brushed along them. A set of brushes
// is written as a filter in the language of `stoker results --where`, so that a link contains it.
import { value } from '../format';
import { ticksOf } from './axis';

export type Row = Record<string, unknown>;

/** A range of numbers, both ends included, or a set of values. */
export type Brush = { from: number; to: number } | { values: unknown[] };
export type Brushes = Record<string, Brush>;

export interface Axis {
  name: string;
  isNumber: boolean;
  isLog: boolean;
  low: number; // of a number axis
  high: number;
  values: unknown[]; // of a category axis, from the bottom
  /** The place of a value, 0 (bottom) to 1; null if it is missing or not on the axis. */
  at(x: unknown): number | null;
  /** The number at a place of a number axis. */
  numberAt(place: number): number;
  ticks: { at: number; text: string }[];
}

const LOG_FROM = 50; // ratio of the largest to the smallest value
const MAX_TICKS = 12;

export const isRange = (brush: Brush): brush is { from: number; to: number } => 'from' in brush;

const short = (x: number) =>
  x !== 0 && (Math.abs(x) < 0.001 || Math.abs(x) >= 1e6)
    ? Number(x.toPrecision(3)).toExponential().replace('e+', 'e')
    : value(Number(x.toPrecision(3)));

export function axisOf(name: string, rows: Row[]): Axis {
  const present = rows.map((row) => row[name]).filter((x) => x !== null && x !== undefined);
  const numbers = present.filter((x): x is number => typeof x === 'number' && Number.isFinite(x));
  if (present.length && numbers.length === present.length) return numberAxis(name, numbers);
  return categoryAxis(name, present);
}

function numberAxis(name: string, numbers: number[]): Axis {
  let low = Infinity;
  let high = -Infinity;
  for (const x of numbers) {
    if (x < low) low = x;
    if (x > high) high = x;
  }
  const isLog = low > 0 && high / low > LOG_FROM;
  const scale = (x: number) => (isLog ? Math.log(x) : x);
  const start = scale(low);
  const span = scale(high) - start;
  const place = (x: number) => (span ? (scale(x) - start) / span : 0.5);
  const distinct = [...new Set(numbers)];
  const shown = distinct.length <= 6 ? distinct : ticksOf({ from: low, to: high, isLog }, 5);
  return {
    name,
    isNumber: true,
    isLog,
    low,
    high,
    values: [],
    at: (x) => (typeof x === 'number' && Number.isFinite(x) ? place(x) : null),
    numberAt: (at) => (isLog ? Math.exp(start + at * span) : start + at * span),
    ticks: shown.map((x) => ({ at: place(x), text: short(x) })),
  };
}

function categoryAxis(name: string, present: unknown[]): Axis {
  const byText = new Map(present.map((x) => [value(x), x]));
  const texts = [...byText.keys()].sort((a, b) => Number(a) - Number(b) || (a < b ? -1 : 1));
  const place = (i: number) => (texts.length > 1 ? i / (texts.length - 1) : 0.5);
  const places = new Map(texts.map((text, i) => [text, place(i)]));
  return {
    name,
    isNumber: false,
    isLog: false,
    low: 0,
    high: 0,
    values: texts.map((text) => byText.get(text)),
    at: (x) => (x === null || x === undefined ? null : (places.get(value(x)) ?? null)),
    numberAt: () => NaN,
    ticks: texts.length <= MAX_TICKS ? texts.map((text, i) => ({ at: place(i), text })) : [],
  };
}

/** The brush between two places of an axis; null if it has nothing. Numbers have three digits. */
export function brushBetween(axis: Axis, a: number, b: number): Brush | null {
  const low = Math.min(a, b);
  const high = Math.max(a, b);
  if (axis.isNumber) {
    const from = rounded(axis.numberAt(low), Math.floor);
    const to = rounded(axis.numberAt(high), Math.ceil);
    // An end of the axis is exact: rounding must not lose the best trial.
    return {
      from: low <= 0 ? axis.low : Math.max(axis.low, from),
      to: high >= 1 ? axis.high : Math.min(axis.high, to),
    };
  }
  const values = axis.values.filter((x) => {
    const at = axis.at(x)!;
    return at >= low - 1e-9 && at <= high + 1e-9;
  });
  return values.length ? { values } : null;
}

function rounded(x: number, how: (x: number) => number): number {
  if (!x) return 0;
  const unit = 10 ** (Math.floor(Math.log10(Math.abs(x))) - 2);
  return Number((how(x / unit) * unit).toPrecision(3));
}

export function holds(brush: Brush, x: unknown): boolean {
  if (isRange(brush)) return typeof x === 'number' && x >= brush.from && x <= brush.to;
  const text = value(x);
  return x !== null && x !== undefined && brush.values.some((one) => value(one) === text);
}

export function isSelected(row: Row, brushes: Brushes): boolean {
  for (const name in brushes) if (!holds(brushes[name]!, row[name])) return false;
  return true;
}

// -- filters ---------------------------------------------------------------------------------------

const PLAIN = /^[A-Za-z_][A-Za-z0-9_]*$/;
const KEYWORDS =
  'False None True and as assert async await break class continue def del elif else except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield'.split(
    ' ',
  );

const nameText = (name: string) =>
  PLAIN.test(name) && !KEYWORDS.includes(name) ? name : `\`${name}\``;

const literal = (x: unknown) => (x === true ? 'True' : x === false ? 'False' : JSON.stringify(x));

/** The brushes as a filter: `lr >= 0.001 and lr <= 0.01 and opt in ["adam"]`; '' for none. */
export function filterOf(brushes: Brushes): string {
  const parts: string[] = [];
  for (const [name, brush] of Object.entries(brushes)) {
    if (name.includes('`')) continue; // the filter language cannot name it
    const word = nameText(name);
    if (!isRange(brush)) parts.push(`${word} in [${brush.values.map(literal).join(', ')}]`);
    else {
      if (brush.from > -Infinity) parts.push(`${word} >= ${brush.from}`);
      if (brush.to < Infinity) parts.push(`${word} <= ${brush.to}`);
    }
  }
  return parts.join(' and ');
}

const NAME = '(?:`([^`]+)`|([A-Za-z_][A-Za-z0-9_]*))';
const COMPARED = new RegExp(`^${NAME} (>=|<=) (-?[0-9][0-9.]*(?:e[+-]?[0-9]+)?)(?: and |$)`);
const LISTED = new RegExp(`^${NAME} in \\[((?:"(?:[^"\\\\]|\\\\.)*"|[^"\\]])*)\\](?: and |$)`);

/** The inverse of `filterOf`; another text gives no brushes. */
export function brushesOf(text: string): Brushes {
  const found: Brushes = {};
  let rest = text;
  while (rest) {
    const compared = COMPARED.exec(rest);
    const listed = compared ? null : LISTED.exec(rest);
    const match = compared ?? listed;
    if (!match) return {};
    const name = match[1] ?? match[2]!;
    if (compared) {
      const before = found[name];
      const range = before && isRange(before) ? before : { from: -Infinity, to: Infinity };
      const number = Number(compared[4]);
      found[name] = compared[3] === '>=' ? { ...range, from: number } : { ...range, to: number };
    } else {
      try {
        const json = listed![3]!.replace(/("(?:[^"\\]|\\.)*")|True|False/g, (word, quoted) =>
          quoted ? word : word.toLowerCase(),
        );
        found[name] = { values: JSON.parse(`[${json}]`) as unknown[] };
      } catch {
        return {};
      }
    }
    rest = rest.slice(match[0].length);
  }
  return found;
}

/** A filter as brushes and the rest, e.g. what the user typed. */
export function splitFilter(text: string): { rest: string; brushes: Brushes } {
  const brushes = brushesOf(text.trim());
  if (Object.keys(brushes).length) return { rest: '', brushes };
  const both = /^\((.*)\) and (.*)$/s.exec(text.trim());
  const later = both ? brushesOf(both[2]!) : {};
  if (Object.keys(later).length) return { rest: both![1]!, brushes: later };
  return { rest: text, brushes: {} };
}

export function joinFilter(rest: string, brushes: Brushes): string {
  const own = filterOf(brushes);
  return rest.trim() && own ? `(${rest}) and ${own}` : own || rest;
}
