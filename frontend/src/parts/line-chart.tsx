// Line charts, drawn by uPlot. This component adds the tooltip of the nearest lines, highlighting, and, where
// `onZoom` is given: drag to zoom, Shift and drag to pan, double-click to reset; on a touch screen one finger
// reads values and two fingers zoom and pan. Charts with the same `hover` share the cursor.
import { type Signal, effect, useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { clock, duration, value } from '../format';
import { color, isDark } from '../theme';
import type { Point } from '../types';
import { visible } from '../words';
import {
  type Limits,
  type Range,
  inUnit,
  panned,
  part,
  placeOf,
  scaleFor,
  span,
  tickText,
  ticksOf,
  valueAt,
  zoomed,
} from './axis';
import {
  type Series,
  extentOf,
  firstNotBelow,
  heightAt,
  nearLines,
  nearestIndex,
  seriesOf,
} from './series';

/** One line: a run, or the mean of a group with the band between its lowest and highest values. */
export interface Line {
  /** A run as in a selection, or the value of a group. */
  key: string;
  label: string;
  /** The parameters of the run in words. */
  detail: string;
  color: string;
  isDashed: boolean;
  line: Series;
  /** The values before smoothing. */
  raw: Series | null;
  band: { low: Series; high: Series } | null;
}

/** Where the pointer is, for all charts of a grid. */
export interface Hover {
  /** The label of the chart with the pointer; empty: the legend. */
  chart: string;
  x: number | null;
  /** The line that stands out. */
  key: string | null;
  /** The lines next to the pointer, nearest first. */
  near: string[];
}

interface Props {
  label: string;
  lines: Line[];
  hover: Signal<Hover | null>;
  height: number;
  /** What the x axis shows: steps, or seconds since the start, or since 1970. */
  xUnit?: 'duration' | 'clock';
  yUnit?: string;
  isLogX?: boolean;
  isLogY?: boolean;
  /** The ends of the y axis; without them, the visible values. */
  limits?: Limits;
  hidden?: ReadonlySet<string>;
  marked?: string;
  zoom?: Range | null;
  onZoom?(zoom: Range | null): void;
  onMark?(key: string): void;
}

const FONT = '11px system-ui, sans-serif';
const LISTED = 8; // lines in the tooltip
const REACH = 48; // pixels between the pointer and a line that stands out
const CLOSEST = 1e-5; // the smallest part of the x axis that can be shown
const MANY = 12; // lines; with more than these, raw values would hide the smoothed ones
const NONE: ReadonlySet<string> = new Set();

/** A chart of one line without zoom: usage over time, or a metric over steps. */
export function SmallChart({
  points,
  ...props
}: { points: Point[] } & Omit<Props, 'lines' | 'hover'>) {
  const hover = useSignal<Hover | null>(null);
  const dark = isDark.value;
  const lines = useMemo(() => {
    const line = seriesOf(points);
    const paint = color('c1');
    return [
      {
        key: 'line',
        label: '',
        detail: '',
        color: paint,
        isDashed: false,
        line,
        raw: null,
        band: null,
      },
    ];
  }, [points, dark]);
  return <LineChart lines={lines} hover={hover} {...props} />;
}

interface Part {
  line: Line;
  kind: 'high' | 'low' | 'raw' | 'line';
}

/** What uPlot draws, from back to front; a low edge follows its high one. */
function partsOf(lines: Line[]): Part[] {
  return [
    ...lines.flatMap(
      (line): Part[] =>
      line.band ? [{ line, kind: 'high' }, { line, kind: 'low' }] : [], // prettier-ignore
    ),
    ...lines.flatMap((line): Part[] => (line.raw ? [{ line, kind: 'raw' }] : [])),
    ...lines.map((line): Part => ({ line, kind: 'line' })),
  ];
}

const seriesOfPart = ({ line, kind }: Part): Series =>
  kind === 'line' ? line.line : kind === 'raw' ? line.raw! : line.band![kind];

/** Points in the format of uPlot: null is a gap. A log axis has only positive values; a band may begin below. */
function dataOf(part: Part, isLogX: boolean, isLogY: boolean): [number[], (number | null)[]] {
  const { xs, ys } = seriesOfPart(part);
  const y = (y: number, i: number) => {
    if (!Number.isFinite(y) || (isLogX && xs[i]! <= 0)) return null;
    if (isLogY && y <= 0) return part.kind === 'low' ? Number.MIN_VALUE : null;
    return y;
  };
  return [[...xs], Array.from(ys, y)];
}

/** The range of the y values between two x values. */
function yExtent(lines: Line[], isLog: boolean, from: number, to: number): Range | null {
  const visible = ({ xs, ys }: Series) =>
    // One point more at both ends: the line to it is visible, too.
    ys.subarray(Math.max(0, firstNotBelow(xs, from) - 1), firstNotBelow(xs, to) + 1);
  const parts = partsOf(lines).filter(({ kind }) => kind !== 'raw');
  return extentOf(
    parts.map((part) => visible(seriesOfPart(part))),
    isLog,
  );
}

export function LineChart(props: Props) {
  const { label, lines, hover, height, xUnit, yUnit, limits, onZoom, onMark } = props;
  const { isLogX = false, isLogY = false, hidden = NONE, marked = '', zoom = null } = props;
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [yZoom, setYZoom] = useState<Range | null>(null);
  const pan = useRef<{ x: number; y: number; from: typeof axes } | null>(null);
  const isDragging = useRef(false);
  const fingers = useRef(new Map<number, number>());
  useEffect(() => setYZoom(null), [label, isLogY]);

  const shown = useMemo(() => lines.filter((one) => !hidden.has(one.key)), [lines, hidden]);
  const whole = useMemo(() => {
    // Hidden lines count, too, so that hiding does not move the axis.
    const all = lines.flatMap((one) => [one.line.xs, ...(one.raw ? [one.raw.xs] : [])]);
    return scaleFor(extentOf(all, isLogX), isLogX, 0);
  }, [lines, isLogX]);
  const axes = useMemo(() => {
    const from = zoom ? Math.max(zoom[0], whole.from) : whole.from;
    const to = zoom ? Math.min(zoom[1], whole.to) : whole.to;
    const x = to > from ? { from, to, isLog: isLogX } : whole;
    const extent = yExtent(shown, isLogY, x.from, x.to);
    const range = yZoom && !(isLogY && yZoom[0] <= 0) ? yZoom : limits && span(...(extent ?? [0, 1]), limits); // prettier-ignore
    const y = range
      ? { from: range[0], to: range[1], isLog: isLogY }
      : scaleFor(extent, isLogY, 0.05);
    return { x, y };
  }, [shown, whole, zoom, yZoom, isLogX, isLogY, limits?.fromZero, limits?.max, limits?.least]);
  const parts = useMemo(() => partsOf(shown), [shown]);
  const bright = () => {
    const keys = new Set([marked, hover.peek()?.key]);
    return shown.filter(({ key }) => keys.has(key));
  };

  // uPlot calls these functions of the latest rendering.
  const latest = useRef({ axes, parts, bright, select: (_: uPlot.Select) => {} });
  latest.current = { axes, parts, bright, select: latest.current.select };
  const shape = parts.map(({ line, kind }) => kind + (line.isDashed ? '-' : '')).join();
  useLayoutEffect(() => {
    const node = box.current!;
    const gray = () => color('ink-3');
    const colorOf = (_: uPlot, i: number) => latest.current.parts[i - 1]!.line.color;
    const axis = (
      name: 'x' | 'y',
      unit: string | undefined,
      space: number,
      size: uPlot.Axis['size'],
    ): uPlot.Axis => ({
      scale: name,
      size,
      gap: 5,
      font: FONT,
      stroke: gray,
      grid: { show: name === 'y', stroke: () => color('line'), width: 1 },
      ticks: { show: false },
      splits: (u) => {
        const length = (name === 'x' ? u.over.clientWidth : u.over.clientHeight) || u.width;
        return ticksOf(latest.current.axes[name], Math.max(2, length / space), unit);
      },
      filter: (_, marks) => marks,
      values: (_, marks) => marks.map((mark) => tickText(mark, unit, marks)),
    });
    const scale = (name: 'x' | 'y', isLog: boolean): uPlot.Scale => ({
      time: false,
      distr: isLog ? 3 : 1,
      range: () => [latest.current.axes[name].from, latest.current.axes[name].to],
    });
    const made = new uPlot(
      {
        mode: 2,
        width: Math.max(1, node.clientWidth),
        height,
        padding: [8, 22, 0, 0],
        legend: { show: false },
        scales: { x: scale('x', isLogX), y: scale('y', isLogY) },
        axes: [
          axis('x', xUnit, 80, 22),
          // As wide as its longest label.
          axis('y', yUnit, 36, (_, texts) =>
            Math.max(46, ...(texts ?? []).map((text) => 14 + 6.4 * text.length)),
          ),
        ],
        series: [
          {},
          ...latest.current.parts.map(({ line, kind }): uPlot.Series => ({
            auto: false,
            stroke: kind === 'line' || kind === 'raw' ? colorOf : undefined,
            dash: line.isDashed && kind === 'line' ? [4, 3] : undefined,
            paths: uPlot.paths.linear!(),
          })),
        ],
        bands: latest.current.parts.flatMap(({ kind }, i) =>
          kind === 'high' ? [{ series: [i + 1, i + 2], fill: (u) => colorOf(u, i + 1) }] : [],
        ),
        cursor: {
          y: false,
          drag: { x: !!onZoom, y: !!onZoom, setScale: false, dist: 6, uni: 18 },
          bind: {
            mousedown: (_u, _node, start) => (event) => {
              if (event.button === 0 && !event.shiftKey) start(event);
              return null;
            },
          },
          dataIdx: (_, i) => {
            const { line, kind } = latest.current.parts[i - 1]!;
            const x = hover.peek()?.x;
            if (kind !== 'line' || x == null) return null;
            const isLit = latest.current.parts.length === 1 || latest.current.bright().includes(line); // prettier-ignore
            const at = isLit ? nearestIndex(line.line, x) : -1;
            return at < 0 ? null : at;
          },
          points: { size: 7, width: 0, fill: (u, i) => colorOf(u, i) },
        },
        hooks: {
          setSelect: [(u) => latest.current.select(u.select)],
          drawSeries: [drawSinglePoint],
        },
      },
      [null, ...latest.current.parts.map((one) => dataOf(one, isLogX, isLogY))] as never,
      node,
    );
    made.ctx.canvas.setAttribute('role', 'img');
    plot.current = made;
    const watch = new ResizeObserver(() =>
      made.setSize({ width: Math.max(1, node.clientWidth), height }),
    );
    watch.observe(node);
    return () => {
      watch.disconnect();
      made.destroy();
    };
  }, [shape, height, isLogX, isLogY, xUnit, yUnit, !onZoom]);

  const dark = isDark.value;
  useLayoutEffect(() => {
    plot.current!.setData([null, ...parts.map((one) => dataOf(one, isLogX, isLogY))] as never);
  }, [parts, axes, isLogX, isLogY, dark]);
  const extent = yExtent(lines, false, -Infinity, Infinity) ?? [0, 0];
  const text = `${label}, from ${inUnit(yUnit, extent[0])} to ${inUnit(yUnit, extent[1])}${lines.length > 1 ? ` (${shown.length} lines)` : ''}`;
  useLayoutEffect(() => plot.current!.ctx.canvas.setAttribute('aria-label', text));

  // The cursor and the lines that stand out.
  useEffect(() => {
    const draw = () => {
      const u = plot.current!;
      const lit = latest.current.bright();
      u.series.slice(1).forEach((series, i) => {
        const { line, kind } = latest.current.parts[i]!;
        const isLit = lit.includes(line);
        const isMany = shown.length > MANY && !isLit;
        series.alpha = { high: isLit ? 0.25 : 0.16, low: 1, raw: isMany ? 0.1 : 0.3, line: isMany ? 0.75 : 1 }[kind]; // prettier-ignore
        if (lit.length && !isLit) series.alpha *= 0.3;
        series.width = { high: 0, low: 0, raw: 1, line: isLit && shown.length > 1 ? 2.5 : line.band ? 2 : 1.5 }[kind]; // prettier-ignore
      });
      u.redraw(false, false);
      const x = hover.peek()?.x ?? null;
      const left = x === null ? -10 : u.valToPos(x, 'x');
      u.setCursor({ left: left > u.over.clientWidth ? -10 : left, top: 0 }, false);
    };
    let frame = 0;
    const stop = effect(() => {
      void hover.value;
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        draw();
      });
    });
    return () => {
      stop();
      cancelAnimationFrame(frame);
    };
  }, [axes, parts, marked, dark, height, isLogX, isLogY]);

  const setX = (range: Range | null) => {
    if (range && placeOf(whole, range[1]) - placeOf(whole, range[0]) < CLOSEST) return;
    onZoom?.(range);
  };
  const reset = () => {
    setYZoom(null);
    onZoom?.(null);
  };

  /** The pointer in pixels of the plot area, and its places on the axes. */
  const at = (event: MouseEvent) => {
    const { left, top, width, height } = plot.current!.over.getBoundingClientRect();
    const [px, py] = [event.clientX - left, event.clientY - top];
    return { px, py, x: px / width, y: 1 - py / height };
  };
  const toX = (x: number) => plot.current!.valToPos(x, 'x');
  const toY = (y: number) => (isLogY && y <= 0 ? NaN : plot.current!.valToPos(y, 'y'));
  const near = (x: number, px: number, py: number) =>
    nearLines(
      shown.map((one) => one.line),
      x,
      px,
      py,
      toX,
      toY,
    ).map((one) => ({ ...one, line: shown[one.line]! }));

  const point = (event: MouseEvent) => {
    const { px, py, x: place } = at(event);
    const x = valueAt(axes.x, Math.max(0, Math.min(1, place)));
    const found = near(x, px, py);
    const first = found[0];
    const isClose = first !== undefined && (first.distance < REACH || shown.length === 1);
    hover.value = {
      chart: label,
      // The cursor is at a point of the line that stands out.
      x: isClose ? first.line.line.xs[first.point]! : x,
      key: isClose ? first.line.key : null,
      near: found.slice(0, LISTED).map((one) => one.line.key),
    };
  };
  const mark = (key: string | null | undefined) => key && onMark?.(key === marked ? '' : key);

  latest.current.select = ({ left, top, width, height }) => {
    const { over } = plot.current!;
    plot.current!.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    const { clientWidth: w, clientHeight: h } = over;
    if (width < w - 1) setX(part(axes.x, left / w, (left + width) / w, whole));
    if (height < h - 1)
      setYZoom([valueAt(axes.y, 1 - (top + height) / h), valueAt(axes.y, 1 - top / h)]);
    hover.value = null;
  };

  const onPointerDown = (event: PointerEvent) => {
    const { x, y } = at(event);
    if (event.pointerType === 'touch') {
      fingers.current.set(event.pointerId, event.clientX);
      if (fingers.current.size === 1) point(event);
    } else if (onZoom && (event.button === 1 || (event.button === 0 && event.shiftKey))) {
      event.preventDefault(); // no automatic scrolling
      box.current!.setPointerCapture(event.pointerId);
      pan.current = { x, y, from: axes };
    } else isDragging.current = event.button === 0 && !!onZoom;
  };

  const onPointerMove = (event: PointerEvent) => {
    if (fingers.current.size === 2) return pinch(event);
    const start = pan.current;
    if (!start) return isDragging.current ? undefined : point(event);
    const { x, y } = at(event);
    if (zoom) setX(panned(start.from.x, start.x - x, whole));
    const step = start.y - y;
    if (yZoom) setYZoom([valueAt(start.from.y, step), valueAt(start.from.y, 1 + step)]);
  };

  const onPointerUp = (event: PointerEvent) => {
    fingers.current.delete(event.pointerId);
    pan.current = null;
    isDragging.current = false;
  };

  const pinch = (event: PointerEvent) => {
    if (!onZoom || !fingers.current.has(event.pointerId)) return;
    const { left, width } = plot.current!.over.getBoundingClientRect();
    const ends = () => {
      const [a, b] = [...fingers.current.values()] as [number, number];
      return { middle: ((a + b) / 2 - left) / width, size: Math.abs(a - b) };
    };
    const before = ends();
    fingers.current.set(event.pointerId, event.clientX);
    const after = ends();
    if (before.size < 20 || after.size < 20) return; // one finger above the other
    const [from, to] = panned(axes.x, before.middle - after.middle, whole);
    setX(zoomed({ from, to, isLog: isLogX }, after.middle, before.size / after.size, whole));
    hover.value = null;
  };

  // A wheel with Ctrl, or two fingers on a touchpad, zooms; browsers send both as the same event.
  const onWheel = useRef((_: WheelEvent) => {});
  onWheel.current = (event) => {
    if (!onZoom || (!event.ctrlKey && !event.metaKey)) return;
    event.preventDefault();
    const factor = Math.exp(Math.max(-50, Math.min(50, event.deltaY)) / 150);
    setX(zoomed(axes.x, Math.max(0, Math.min(1, at(event).x)), factor, whole));
  };
  useEffect(() => {
    const node = box.current!;
    const listen = (event: WheelEvent) => onWheel.current(event);
    node.addEventListener('wheel', listen, { passive: false });
    return () => node.removeEventListener('wheel', listen);
  }, []);

  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const now = hover.peek();
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key] ?? 0;
    const rise = { ArrowUp: 1, ArrowDown: -1 }[event.key] ?? 0;
    const place = now?.x != null ? placeOf(axes.x, now.x) : 0.5;
    if (step && event.shiftKey) {
      if (zoom) setX(panned(axes.x, step / 4, whole));
    } else if (step || event.key === 'Home' || event.key === 'End') walk(step, event.key);
    else if (rise) climb(rise);
    else if (event.key === '+' || event.key === '=') setX(zoomed(axes.x, place, 0.5, whole));
    else if (event.key === '-') setX(zoomed(axes.x, place, 2, whole));
    else if (event.key === '0' || (event.key === 'Escape' && (zoom || yZoom))) reset();
    else if (event.key === ' ' && now?.key) mark(now.key);
    else return;
    event.preventDefault();
  };

  /** Move the cursor to another point of the same line. */
  const walk = (step: number, key: string) => {
    const now = hover.peek();
    const one = shown.find(({ key }) => key === (now?.key ?? marked)) ?? shown.at(-1);
    if (!one) return;
    const { xs } = one.line;
    const here = nearestIndex(one.line, now?.x ?? axes.x.to);
    let next = key === 'Home' ? 0 : key === 'End' ? xs.length - 1 : now ? here + step : here;
    while (next > 0 && next < xs.length && !Number.isFinite(one.line.ys[next]!)) next += step || -1;
    const x = xs[Math.max(0, Math.min(xs.length - 1, next))];
    if (x === undefined) return;
    show(one, x);
    if (zoom && (x < axes.x.from || x > axes.x.to)) setX(panned(axes.x, step / 4, whole));
  };

  /** Move the cursor to the next line above or below. */
  const climb = (rise: number) => {
    const x = hover.peek()?.x ?? axes.x.to;
    const heights = shown
      .map((one) => ({ one, y: heightOf(one, x) }))
      .filter(({ y }) => Number.isFinite(y))
      .sort((a, b) => a.y - b.y);
    const here = heights.findIndex(({ one }) => one.key === hover.peek()?.key);
    const next = heights[here < 0 ? heights.length - 1 : here + rise];
    if (next) show(next.one, x);
  };

  const show = (one: Line, x: number) => {
    const others = near(x, toX(x), toY(heightOf(one, x))).map(({ line }) => line.key);
    const keys = [...new Set([one.key, ...others])].slice(0, LISTED);
    hover.value = { chart: label, x, key: one.key, near: keys };
  };

  const leave = () => hover.peek()?.chart === label && (hover.value = null);
  const control = onZoom && {
    tabIndex: 0,
    role: 'group' as const,
    'aria-label': `Chart of ${label}: arrow keys move the cursor, + and - zoom, Shift and arrow keys pan, 0 resets`,
    onDblClick: reset,
    onKeyDown,
    onBlur: leave,
    // A tap only reads values; and after a pan, the target is not the plot area.
    onClick: (event: MouseEvent) =>
      event.target === plot.current!.over &&
      (event as PointerEvent).pointerType !== 'touch' &&
      mark(hover.peek()?.key),
  };
  return (
    <div
      ref={box}
      class={onZoom ? 'plot zoomable' : 'plot'}
      style={{ height: `${height}px` }}
      onPointerDown={onPointerDown}
      onPointerMove={onPointerMove}
      onPointerUp={onPointerUp}
      onPointerCancel={(event) => {
        onPointerUp(event);
        hover.value = null;
      }}
      onPointerLeave={(event) => event.pointerType !== 'touch' && leave()}
      {...control}
    >
      {onZoom && (zoom !== null || yZoom !== null) && (
        <button
          class="reset"
          onPointerDown={(event) => event.stopPropagation()}
          onClick={reset}
          title="Show everything (double-click, or the key 0)"
        >
          Reset zoom
        </button>
      )}
      <Tip {...props} shown={shown} plot={plot} />
    </div>
  );
}

/** A line of one point has no length. */
function drawSinglePoint(u: uPlot, i: number): void {
  const [xs, ys] = u.data[i] as unknown as [number[], (number | null)[]];
  const first = ys.findIndex((y) => y !== null);
  if (first < 0 || first !== ys.findLastIndex((y) => y !== null) || !u.series[i]!.width) return;
  u.ctx.fillStyle = (u.series[i]!.stroke as (u: uPlot, i: number) => string)(u, i);
  u.ctx.beginPath();
  const [x, y] = [u.valToPos(xs[first]!, 'x', true), u.valToPos(ys[first]!, 'y', true)];
  u.ctx.arc(x, y, 2.5 * devicePixelRatio, 0, 2 * Math.PI);
  u.ctx.fill();
}

/** The height of a line at a point; at its nearest point outside of the line. */
function heightOf({ line }: Line, x: number): number {
  const y = heightAt(line, x);
  if (Number.isFinite(y)) return y;
  const i = nearestIndex(line, x);
  return i < 0 ? NaN : line.ys[i]!;
}

/** The value of the line that stands out, in the charts without the pointer. */
export function Readout({
  hover,
  label,
  lines,
  marked,
}: {
  hover: Signal<Hover | null>;
  label: string;
  lines: Line[];
  marked: string;
}) {
  const at = hover.value;
  if (!at || at.x === null || at.chart === label) return null;
  const one = lines.find(({ key }) => key === (at.key ?? marked));
  const i = one ? nearestIndex(one.line, at.x) : -1;
  return i < 0 ? null : <span class="num readout">{value(one!.line.ys[i])}</span>;
}

/** The values of the lines next to the pointer, from top to bottom. */
function Tip({
  hover,
  label,
  shown,
  xUnit,
  yUnit,
  onZoom,
  plot,
}: Props & { shown: Line[]; plot: { current: uPlot | null } }) {
  const at = hover.value;
  if (!at || at.x === null || at.chart !== label) return null;
  const rows = at.near
    .map((key) => shown.find((one) => one.key === key))
    .filter((one): one is Line => one !== undefined)
    .map((one) => ({ one, i: nearestIndex(one.line, at.x!) }))
    .filter(({ i }) => i >= 0)
    .map(({ one, i }) => ({
      one,
      y: one.line.ys[i]!,
      low: one.band && one.band.low.ys[nearestIndex(one.band.low, at.x!)],
      high: one.band && one.band.high.ys[nearestIndex(one.band.high, at.x!)],
    }))
    .sort((a, b) => b.y - a.y);
  if (!rows.length) return null;
  const { bbox, width, valToPos } = plot.current!;
  const px = bbox.left / devicePixelRatio + valToPos(at.x, 'x');
  const place =
    px < width / 2
      ? { left: `${Math.round(px) + 12}px` }
      : { right: `${Math.round(width - px) + 12}px` };
  const where =
    xUnit === 'clock'
      ? clock(new Date(at.x * 1000).toISOString())
      : xUnit === 'duration'
        ? duration(at.x)
        : `step ${value(at.x)}`;
  if (!onZoom)
    return (
      <output class="tip num" style={place}>
        <span>
          <b>{inUnit(yUnit, rows[0]!.y)}</b> {where}
        </span>
      </output>
    );
  const more = shown.length - rows.length;
  const detail = rows.find(({ one }) => one.key === at.key)?.one.detail;
  return (
    <output class="tip num" style={place}>
      <b>{where}</b>
      {rows.map(({ one, y, low, high }) => (
        <span key={one.key} class={one.key === at.key ? 'tip-row near' : 'tip-row'}>
          <i style={{ background: one.color }} />
          <span class="cut">{visible(one.label)}</span>
          <span>
            {value(y)}
            {low != null && high != null && (
              <span class="dim">
                {' '}
                {value(low)} to {value(high)}
              </span>
            )}
          </span>
        </span>
      ))}
      {more > 0 && <span class="dim">{more} more</span>}
      {detail && <small>{visible(detail)}</small>}
    </output>
  );
}
