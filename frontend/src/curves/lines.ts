// The lines of a response of /api/curves, as the charts draw them.
import { plural, value } from '../format';
import { distinctColor, rankColor } from './colors';
import type { Line } from '../parts/line-chart';
import { seriesOf } from '../parts/series';
import type { CurveBand, CurveLine, Curves } from './types';

/** An entry of the legend. */
export interface Entry {
  key: string;
  label: string;
  /** The last values of a group, as `stoker results --group` shows them. */
  detail: string;
  color: string;
  job: number | null;
  state: string | null;
}

export interface Prepared {
  charts: { metric: string; goal: string; drawn: Line[]; note: string | null }[];
  entries: Entry[];
}

/** A trial as SWEEP/TRIAL, since its parameters are shown elsewhere; a job with its name. */
export const shortName = (run: { run: string; label: string }) =>
  run.run.includes('/') ? run.run : run.label;

const DISTINCT = 8; // groups that have a color of their own
const BAD = ['failed', 'lost', 'cancelled'];
const keyOfBand = (band: CurveBand) => `=${band.label}`;

/**
 * The lines of each chart, with the same colors in every chart. `order`: runs in the order of their
 * colors; null: the color is the rank. `isShown`: which runs are drawn.
 */
export function preparedLines(
  data: Curves,
  order: readonly string[] | null,
  isShown: (line: CurveLine) => boolean,
): Prepared {
  const isGrouped = data.charts.some((chart) => chart.bands);
  return isGrouped ? ofGroups(data) : ofRuns(data, order, isShown);
}

function ofGroups(data: Curves): Prepared {
  const keys = [...new Set(data.charts.flatMap((chart) => (chart.bands ?? []).map(keyOfBand)))];
  const colors = new Map(keys.map((key, i) => [key, distinctColor(i)]));
  const values = new Map(
    data.charts.flatMap((chart) => chart.bands ?? []).map((band) => [keyOfBand(band), band.value]),
  );
  if (keys.length > DISTINCT && keys.every((key) => Number.isFinite(Number(values.get(key))))) {
    // Many values of a number: the color is their order.
    [...keys]
      .sort((a, b) => Number(values.get(a)) - Number(values.get(b)))
      .forEach((key, i) => colors.set(key, rankColor(i / (keys.length - 1))));
  }
  const entries = new Map<string, Entry>();
  const charts = data.charts.map(({ metric, goal, bands, note }) => ({
    metric,
    goal: goal ?? '',
    note,
    drawn: (bands ?? []).map((band): Line => {
      const key = keyOfBand(band);
      const paint = colors.get(key)!;
      if (!entries.has(key))
        entries.set(key, {
          key,
          label: band.label,
          detail: `${spreadOf(band)} (${plural(band.runs, 'run')})`,
          color: paint,
          job: null,
          state: null,
        });
      return {
        key,
        label: band.label,
        detail: `last values ${spreadOf(band)}, ${plural(band.runs, 'run')}`,
        color: paint,
        isDashed: false,
        line: seriesOf(band.mean),
        raw: null,
        band: { low: seriesOf(band.low), high: seriesOf(band.high) },
      };
    }),
  }));
  return { charts, entries: keys.map((key) => entries.get(key)!) };
}

/** `0.3124 ± 0.021`: the mean of the last values and their standard deviation, rounded. */
function spreadOf({ final }: CurveBand): string {
  const rounded = (x: number | null, digits: number) =>
    value(x === null ? null : Number(x.toPrecision(digits)));
  if (final.sd === null) return rounded(final.mean, 4);
  return `${rounded(final.mean, 4)} ± ${rounded(final.sd, 2)}`;
}

function ofRuns(
  data: Curves,
  order: readonly string[] | null,
  isShown: (line: CurveLine) => boolean,
): Prepared {
  const runs = new Map<string, CurveLine>();
  for (const chart of data.charts) for (const line of chart.lines) runs.set(line.run, line);
  const places = new Map([...(order ?? []), ...runs.keys()].map((run) => [run, 0]));
  [...places.keys()].forEach((run, i) => places.set(run, i));
  // The rank among the lines that are drawn: the best 50 of 2,000 must not all look alike.
  const ranked = [...runs.values()]
    .filter((line) => line.rank !== null)
    .sort((a, b) => a.rank! - b.rank!);
  const shades = new Map(
    ranked.map((line, i) => [line.run, ranked.length > 1 ? i / (ranked.length - 1) : 0]),
  );
  const paint = (line: CurveLine) =>
    order === null && ranked.length
      ? rankColor(shades.get(line.run) ?? null)
      : distinctColor(places.get(line.run)!);
  const labelOf = (line: CurveLine) =>
    order === null && line.trial !== null ? `#${line.trial}` : shortName(line);
  const rank = (line: CurveLine) => line.rank ?? 2;
  const charts = data.charts.map(({ metric, goal, lines, note }) => ({
    metric,
    goal: goal ?? '',
    note,
    drawn: lines
      .filter(isShown)
      // Lines without a rank first, then from worst to best, so that the best is on top.
      .sort((a, b) => rank(b) - rank(a) || places.get(a.run)! - places.get(b.run)!)
      .map((line): Line => ({
        key: line.run,
        label: labelOf(line),
        detail: Object.entries(line.params)
          .map(([name, x]) => `${name}=${value(x)}`)
          .join(', '),
        color: paint(line),
        isDashed: BAD.includes(line.state) || (order !== null && places.get(line.run)! >= 16),
        line: seriesOf(line.points),
        raw: line.raw ? seriesOf(line.raw) : null,
        band: null,
      })),
  }));
  const entries = [...runs.values()]
    .filter(isShown)
    .sort((a, b) => (order === null ? rank(a) - rank(b) : places.get(a.run)! - places.get(b.run)!))
    .map((line) => ({
      key: line.run,
      label: labelOf(line),
      detail: '',
      color: paint(line),
      job: line.job,
      state: line.state,
    }));
  return { charts, entries };
}
