// The points of curves as typed arrays, and the search for the points next to the pointer.
import type { Point } from '../types';

/** Ascending x values and their y values; a y that was not measured is NaN. */
export interface Series {
  xs: Float64Array;
  ys: Float64Array;
}

/** Points in any order; of two with the same x value, the last one counts. */
export function seriesOf(points: readonly Point[]): Series {
  const sorted = [...new Map(points)].sort((a, b) => a[0] - b[0]);
  return {
    xs: Float64Array.from(sorted, (point) => point[0]),
    ys: Float64Array.from(sorted, (point) => point[1] ?? NaN),
  };
}

/** The index of the first x that is not below `x`; the length if there is none. */
export function firstNotBelow(xs: Float64Array, x: number): number {
  let low = 0;
  let high = xs.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle]! < x) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The index of the measured point with the nearest x, or -1 if there is none. */
export function nearestIndex({ xs, ys }: Series, x: number): number {
  const at = firstNotBelow(xs, x);
  let after = at;
  while (after < xs.length && !Number.isFinite(ys[after]!)) after++;
  let before = at - 1;
  while (before >= 0 && !Number.isFinite(ys[before]!)) before--;
  if (after >= xs.length) return before;
  if (before < 0) return after;
  return x - xs[before]! <= xs[after]! - x ? before : after;
}

/** The height of the line at `x`, between its points; NaN outside of the line. */
export function heightAt({ xs, ys }: Series, x: number): number {
  const at = firstNotBelow(xs, x);
  if (at >= xs.length) return NaN;
  if (xs[at] === x || at === 0) return xs[at] === x ? ys[at]! : NaN;
  const share = (x - xs[at - 1]!) / (xs[at]! - xs[at - 1]!);
  return ys[at - 1]! + share * (ys[at]! - ys[at - 1]!);
}

/** The range of the values that an axis can show: finite ones, and positive ones on a log axis. */
export function extentOf(all: Iterable<Float64Array>, isLog: boolean): [number, number] | null {
  let low = Infinity;
  let high = -Infinity;
  for (const values of all) {
    for (const x of values) {
      if (!Number.isFinite(x) || (isLog && x <= 0)) continue;
      if (x < low) low = x;
      if (x > high) high = x;
    }
  }
  return low <= high ? [low, high] : null;
}

export interface Near {
  /** The position of the line in the list. */
  line: number;
  /** The index of its nearest point. */
  point: number;
  /** The distance to the pointer, in pixels. */
  distance: number;
}

/**
 * The lines next to the pointer, nearest first. `toX` and `toY` give the pixel of a value; (`px`, `py`) is
 * the pointer and `x` the value below it. Lines that end further away than `reach` pixels are left out.
 */
export function nearLines(
  lines: readonly Series[],
  x: number,
  px: number,
  py: number,
  toX: (x: number) => number,
  toY: (y: number) => number,
  reach = 24,
): Near[] {
  const found: Near[] = [];
  lines.forEach((line, i) => {
    const point = nearestIndex(line, x);
    if (point < 0) return;
    const height = heightAt(line, x);
    // Between two points, the line is near, too; beyond its ends only its last point counts.
    const isInside = Number.isFinite(height);
    const dx = isInside ? 0 : toX(line.xs[point]!) - px;
    const dy = toY(isInside ? height : line.ys[point]!) - py;
    if (Math.abs(dx) > reach || !Number.isFinite(dy)) return;
    found.push({ line: i, point, distance: Math.hypot(dx, dy) });
  });
  return found.sort((a, b) => a.distance - b.distance);
}
