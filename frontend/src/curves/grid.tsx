// Several charts of the same runs, with one legend and one cursor.
import { useSignal } from '@preact/signals';
import { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { count } from '../format';
import type { Range } from '../parts/axis';
import { Empty, Failed, Loading, Section } from '../parts/bits';
import { type Hover, LineChart, Readout } from '../parts/line-chart';
import { href, replace, route } from '../route';
import { isDark, isPhone } from '../theme';
import type { Delta } from '../types';
import { useChanges, useFetch } from '../use-fetch';
import { visible } from '../words';
import {
  DEFAULT,
  type Layout,
  hasLayout,
  layoutFrom,
  storeLayout,
  storedLayout,
  withLayout,
} from './layout';
import { Legend } from './legend';
import { preparedLines } from './lines';
import { CurveTools } from './toolbar';
import type { CurveLine, Curves } from './types';

const LINES = 50;
const POINTS = 300;
const POINTS_ZOOMED = 1500; // a part of the curve has more detail
const MAX_POINTS = 900_000; // of one response, below the limit of the server
const ZOOM_MS = 250; // after the last change of the zoom, the address follows

interface Props {
  /** The selection, as in the address of a comparison. */
  runs: string[];
  /** The selection for groups, which may be too many for single lines; `runs` if not given. */
  grouped?: string[];
  /** The name under which the layout is remembered; null: only the address has it. */
  remember: string | null;
  /** Runs in the order of their colors; null: the color is the rank within the sweep. */
  order: readonly string[] | null;
  /** The parameters to group by. */
  groups: string[];
  /** Which of the lines are drawn. */
  isShown?(line: CurveLine): boolean;
  /** A remark about groups, e.g. that a filter does not apply to them. */
  groupNote?: string;
  concerns(delta: Delta): boolean;
}

const all = () => true;

export function CurveGrid(props: Props) {
  const { runs, grouped = runs, remember, order, groups, isShown = all, concerns } = props;
  const [layout, change] = useLayout(remember);
  const [zoom, setZoom] = useZoom(layout, change);
  const path = pathOf(layout.group ? grouped : runs, layout, zoom !== null);
  const { data: fresh, error, reload } = useFetch<Curves>(path);
  useChanges(concerns, reload, 4000);
  // The charts stay while another smoothing or metric is loading.
  const last = useRef<Curves | null>(null);
  if (fresh) last.current = fresh;
  const data = last.current;
  const hover = useSignal<Hover | null>(null);
  const dark = isDark.value;
  const prepared = useMemo(
    () => data && preparedLines(data, order, isShown),
    [data, order, isShown, dark],
  );
  const hidden = useMemo(() => new Set(layout.hidden), [layout.hidden.join('\n')]);
  const onMark = useCallback((marked: string) => change({ marked }), [change]);

  if (!data || !prepared)
    return (
      <Section title="Curves">
        {error ? <Failed error={error} retry={reload} /> : <Loading rows={7} />}
      </Section>
    );
  const shown = data.charts.map((chart) => chart.metric);
  const columns = layout.columns || (shown.length < 2 ? 1 : shown.length % 3 ? 2 : 3);
  const height = isPhone.value ? 220 : [300, 300, 240, 210][columns]!;
  const isEmpty = prepared.charts.every((chart) => !chart.drawn.length);
  return (
    <Section
      title="Curves"
      note={noteOf(data, prepared.entries.length)}
      tools={
        hasLayout(withLayout(new URLSearchParams(), layout)) && (
          <button class="link" onClick={() => change(DEFAULT)}>
            Reset layout
          </button>
        )
      }
    >
      <CurveTools
        layout={layout}
        metrics={data.metrics}
        shown={shown}
        groups={groups}
        onChange={change}
      />
      {error && !fresh && <Failed error={error} retry={reload} />}
      {isEmpty && !data.metrics.length ? (
        <Empty title="No curves yet">Runs that report a metric at least twice appear here.</Empty>
      ) : (
        <div class={`curve-grid across-${columns}`} aria-busy={!fresh}>
          {prepared.charts.map(({ metric, goal, drawn, note }) => (
            <figure key={metric}>
              <figcaption>
                <b class="mono cut" title={visible(metric)}>
                  {visible(metric)}
                </b>
                {goal && (
                  <span class="dim" title="runs are ranked by their last value">
                    {goal}
                  </span>
                )}
                <Readout hover={hover} label={metric} lines={drawn} marked={layout.marked} />
                <span class="grow" />
                <button
                  class="toggle"
                  aria-pressed={layout.logY.includes(metric)}
                  aria-label={`Log y axis of ${visible(metric)}`}
                  title="Logarithmic y axis"
                  onClick={() => change({ logY: toggled(layout.logY, metric) })}
                >
                  log y
                </button>
                {shown.length > 1 && (
                  <button
                    class="icon"
                    aria-label={`Remove the chart of ${visible(metric)}`}
                    title="Remove this chart"
                    onClick={() => change({ metrics: shown.filter((one) => one !== metric) })}
                  >
                    ×
                  </button>
                )}
              </figcaption>
              {drawn.length ? (
                <LineChart
                  label={metric}
                  lines={drawn}
                  hidden={hidden}
                  marked={layout.marked}
                  xUnit={data.x === 'time' ? 'duration' : undefined}
                  isLogX={layout.isLogX}
                  isLogY={layout.logY.includes(metric)}
                  zoom={zoom}
                  onZoom={setZoom}
                  onMark={onMark}
                  hover={hover}
                  height={height}
                />
              ) : (
                <Empty title={visible(note ?? `No curves of ${metric}`)} />
              )}
              {note && drawn.length > 0 && <p class="dim hint">{visible(note)}</p>}
            </figure>
          ))}
        </div>
      )}
      {layout.group && props.groupNote && <p class="dim hint pad">{props.groupNote}</p>}
      <Legend
        entries={prepared.entries}
        hidden={hidden}
        marked={layout.marked}
        hover={hover}
        onHidden={(keys) => change({ hidden: keys })}
        onMark={onMark}
      />
    </Section>
  );
}

const toggled = (names: string[], name: string) =>
  names.includes(name) ? names.filter((one) => one !== name) : [...names, name];

function noteOf(data: Curves, lines: number): string | undefined {
  const leftOff = Math.max(0, ...data.charts.map((chart) => chart.left_off));
  const band = data.charts.find((chart) => chart.bands)?.band;
  if (band) return `mean of each group; band: ${band}`;
  const which = data.charts.some((chart) => chart.goal === null) ? 'some' : 'best';
  return leftOff ? `${which} ${count(lines)} of ${count(lines + leftOff)} runs` : undefined;
}

function pathOf(runs: string[], layout: Layout, isZoomed: boolean): string {
  const words = new URLSearchParams();
  for (const run of runs) words.append('runs', run);
  for (const metric of layout.metrics) words.append('metric', metric);
  words.set('x', layout.x);
  if (layout.smooth) words.set('smooth', String(layout.smooth));
  if (layout.group) words.set('group', layout.group);
  const most = Math.floor(MAX_POINTS / LINES / Math.max(4, layout.metrics.length));
  words.set('points', String(Math.min(isZoomed ? POINTS_ZOOMED : POINTS, most)));
  words.set('lines', String(layout.group ? 0 : LINES));
  return `/api/curves?${words}`;
}

/** The layout of the address, or else the remembered one; and a function that changes a part of it. */
function useLayout(remember: string | null): [Layout, (changed: Partial<Layout>) => void] {
  const { query } = route.value;
  const stored = useMemo(() => (remember === null ? null : storedLayout(remember)), [remember]);
  const [isNew, setNew] = useState(true); // nothing was changed yet
  const layout = useMemo(
    () => (hasLayout(query) || !isNew ? layoutFrom(query) : (stored ?? DEFAULT)),
    [query, stored, isNew],
  );
  const latest = useRef(layout);
  latest.current = layout;
  const write = (next: Layout) =>
    replace(href(route.peek().path, withLayout(route.peek().query, next)));
  useEffect(() => {
    // The address has the layout from the start, so that it can be copied.
    if (stored && !hasLayout(route.peek().query)) write(stored);
  }, [stored]);
  const change = useCallback(
    (changed: Partial<Layout>) => {
      const next = { ...latest.current, ...changed };
      latest.current = next;
      setNew(false);
      write(next);
      if (remember !== null) storeLayout(remember, next);
    },
    [remember],
  );
  return [layout, change];
}

/** The zoom of the x axis; the address follows when it stays the same for a moment. */
function useZoom(
  layout: Layout,
  change: (changed: Partial<Layout>) => void,
): [Range | null, (zoom: Range | null) => void] {
  const [zoom, setZoom] = useState<Range | null>(layout.zoom);
  const timer = useRef(0);
  const key = layout.zoom?.join('_') ?? '';
  useEffect(() => {
    if (!timer.current) setZoom(layout.zoom);
  }, [key]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const set = useCallback(
    (next: Range | null) => {
      setZoom(next);
      clearTimeout(timer.current);
      timer.current = window.setTimeout(() => {
        timer.current = 0;
        change({ zoom: next });
      }, ZOOM_MS);
    },
    [change],
  );
  return [zoom, set];
}
