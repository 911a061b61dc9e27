// Chart data in the format of uPlot.
import uPlot from 'uplot';
import type { Point } from '../types';

/** All lines over a common, ascending x axis. Values above `top` are cut off. In a line, null is a gap
 * (not measured) and undefined an x value of other lines. */
export function aligned(lines: { points: Point[] }[], top = Infinity): uPlot.AlignedData {
  const tables = lines.map((line): uPlot.AlignedData => {
    // A step that was reported twice keeps its last value.
    const byX = new Map(line.points);
    const xs = [...byX.keys()].sort((a, b) => a - b);
    const ys = xs.map((x) => {
      const y = byX.get(x) ?? null;
      return y === null || !Number.isFinite(y) ? null : Math.min(y, top);
    });
    return [xs, ys];
  });
  return uPlot.join(tables);
}
