// One chart of curves. Drag to zoom, Shift and drag to pan, double-click to reset; on a touch screen one
// finger reads values and two fingers zoom and pan. The cursor is shared by all charts of a grid.
import { type Signal, effect } from '@preact/signals';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { duration, value } from '../format';
import { isDark } from '../theme';
import { visible } from '../words';
import {
  type Area,
  type Axes,
  type Drawn,
  areaOf,
  drawCursor,
  drawLines,
  prepare,
  toX,
  toY,
  xExtent,
  yExtent,
} from './draw';
import { type Range, panned, part, placeOf, scaleFor, valueAt, zoomed } from './scale';
import { heightAt, nearLines, nearestIndex } from './series';

/** Where the pointer is, for all charts of a grid. */
export interface Hover {
  /** The metric of the chart with the pointer; empty: the legend. */
  chart: string;
  x: number | null;
  /** The line that stands out. */
  key: string | null;
  /** The lines next to the pointer, nearest first. */
  near: string[];
}

interface Props {
  metric: string;
  drawn: Drawn[];
  hidden: ReadonlySet<string>;
  marked: string;
  isTime: boolean;
  isLogX: boolean;
  isLogY: boolean;
  zoom: Range | null;
  onZoom(zoom: Range | null): void;
  onMark(key: string): void;
  hover: Signal<Hover | null>;
  height: number;
}

const LISTED = 8; // lines in the tooltip
const REACH = 48; // pixels between the pointer and a line that stands out
const DRAG = 6; // pixels; less is a click
const CLOSEST = 1e-5; // the smallest part of the x axis that can be shown

interface Drag {
  x: number;
  y: number;
  isPan: boolean;
  /** The x axis when the drag began. */
  from: Axes;
}

export function CurveChart(props: Props) {
  const { metric, drawn, hidden, marked, isTime, isLogX, isLogY, zoom, hover, height } = props;
  const box = useRef<HTMLDivElement>(null);
  const below = useRef<HTMLCanvasElement>(null);
  const above = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [yZoom, setYZoom] = useState<Range | null>(null);
  const drag = useRef<Drag | null>(null);
  const fingers = useRef(new Map<number, { x: number; y: number }>());
  const selection = useRef<{ left: number; top: number; right: number; bottom: number } | null>(
    null,
  );
  useEffect(() => setYZoom(null), [metric, isLogY]);

  const shown = useMemo(() => drawn.filter((one) => !hidden.has(one.key)), [drawn, hidden]);
  const whole = useMemo(() => scaleFor(xExtent(drawn, isLogX), isLogX, 0), [drawn, isLogX]);
  const axes = useMemo((): Axes => {
    const from = zoom ? Math.max(zoom[0], whole.from) : whole.from;
    const to = zoom ? Math.min(zoom[1], whole.to) : whole.to;
    const x = to > from ? { from, to, isLog: isLogX } : whole;
    const range = yZoom && !(isLogY && yZoom[0] <= 0) ? yZoom : null;
    const y = range
      ? { from: range[0], to: range[1], isLog: isLogY }
      : scaleFor(yExtent(shown, isLogY, x), isLogY, 0.05);
    return { x, y, isTime };
  }, [shown, whole, zoom, yZoom, isLogX, isLogY, isTime]);

  useLayoutEffect(() => {
    const node = box.current!;
    const measure = () => setWidth(node.clientWidth);
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(node);
    return () => watch.disconnect();
  }, []);

  const dark = isDark.value;
  const area = useRef<Area>({ left: 0, top: 0, width: 1, height: 1 });
  useLayoutEffect(() => {
    if (!width) return;
    const context = prepare(below.current!, width, height);
    area.current = areaOf(context, width, height, axes.y);
    drawLines(context, area.current, axes, shown, height);
  }, [axes, shown, width, height, dark]);

  const redraw = useRef(() => {});
  useEffect(() => {
    redraw.current = () => {
      const at = hover.peek();
      const context = prepare(above.current!, width, height);
      drawCursor(context, area.current, axes, shown, {
        x: at?.x ?? null,
        keys: [...new Set([marked, at?.key ?? ''])].filter(Boolean),
        box: selection.current,
      });
    };
    let frame = 0;
    const stop = effect(() => {
      void hover.value;
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        redraw.current();
      });
    });
    return () => {
      stop();
      cancelAnimationFrame(frame);
    };
  }, [axes, shown, marked, width, height, dark]);

  const setX = (range: Range | null) => {
    if (range && placeOf(whole, range[1]) - placeOf(whole, range[0]) < CLOSEST) return;
    props.onZoom(range);
  };
  const reset = () => {
    setYZoom(null);
    props.onZoom(null);
  };

  /** The pointer in pixels of this chart. */
  const at = (event: MouseEvent) => {
    const { left, top } = box.current!.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  };
  const placeX = (px: number) => (px - area.current.left) / area.current.width;
  const placeY = (py: number) => 1 - (py - area.current.top) / area.current.height;

  const point = (px: number, py: number) => {
    const x = valueAt(axes.x, Math.max(0, Math.min(1, placeX(px))));
    const lines = shown.map((one) => one.line);
    const near = nearLines(lines, x, px, py, toX(area.current, axes.x), toY(area.current, axes.y));
    const first = near[0];
    const isClose = first !== undefined && (first.distance < REACH || shown.length === 1);
    const line = first && shown[first.line]!.line;
    hover.value = {
      chart: metric,
      // The cursor is at a point of the line that stands out.
      x: isClose ? line!.xs[first.point]! : x,
      key: isClose ? shown[first.line]!.key : null,
      near: near.slice(0, LISTED).map((one) => shown[one.line]!.key),
    };
  };

  const onPointerDown = (event: PointerEvent) => {
    const { x, y } = at(event);
    if (event.pointerType === 'touch') {
      fingers.current.set(event.pointerId, { x, y });
      if (fingers.current.size === 1) point(x, y);
      return;
    }
    if (event.button > 1) return;
    if (event.button === 1) event.preventDefault(); // no automatic scrolling
    box.current!.setPointerCapture(event.pointerId);
    drag.current = { x, y, isPan: event.shiftKey || event.button === 1, from: axes };
  };

  const onPointerMove = (event: PointerEvent) => {
    const { x, y } = at(event);
    const finger = fingers.current.get(event.pointerId);
    if (finger && fingers.current.size === 2) return pinch(event.pointerId, x, y);
    if (finger) fingers.current.set(event.pointerId, { x, y });
    const start = drag.current;
    if (!start) return point(x, y);
    if (start.isPan) {
      if (!zoom && !yZoom) return;
      if (zoom) setX(panned(start.from.x, placeX(start.x) - placeX(x), whole));
      if (yZoom) {
        const step = placeY(start.y) - placeY(y);
        setYZoom([valueAt(start.from.y, step), valueAt(start.from.y, 1 + step)]);
      }
      return;
    }
    const { left, top, width, height } = area.current;
    const limited = (v: number, low: number, size: number) =>
      Math.max(low, Math.min(low + size, v));
    const isWide = Math.abs(x - start.x) > DRAG;
    const isTall = Math.abs(y - start.y) > 3 * DRAG; // a slightly slanted drag is meant as horizontal
    selection.current =
      isWide || isTall
        ? {
            left: isWide ? limited(Math.min(x, start.x), left, width) : left,
            right: isWide ? limited(Math.max(x, start.x), left, width) : left + width,
            top: isTall ? limited(Math.min(y, start.y), top, height) : top,
            bottom: isTall ? limited(Math.max(y, start.y), top, height) : top + height,
          }
        : null;
    redraw.current();
  };

  const onPointerUp = (event: PointerEvent) => {
    fingers.current.delete(event.pointerId);
    const start = drag.current;
    drag.current = null;
    const chosen = selection.current;
    selection.current = null;
    if (!start || start.isPan) return;
    if (!chosen) {
      // A click: the line stays highlighted.
      const key = hover.peek()?.key;
      if (key && event.type === 'pointerup') props.onMark(key === marked ? '' : key);
      return;
    }
    redraw.current();
    if (event.type !== 'pointerup') return;
    const { left, top, width, height } = area.current;
    if (chosen.right - chosen.left < width)
      setX(part(axes.x, (chosen.left - left) / width, (chosen.right - left) / width, whole));
    if (chosen.bottom - chosen.top < height)
      setYZoom([
        valueAt(axes.y, placeY(chosen.bottom)),
        valueAt(axes.y, placeY(Math.max(top, chosen.top))),
      ]);
    hover.value = null;
  };

  const pinch = (id: number, x: number, y: number) => {
    const span = () => {
      const xs = [...fingers.current.values()].map((finger) => finger.x);
      const [low, high] = [Math.min(...xs), Math.max(...xs)];
      return { middle: (low + high) / 2, size: high - low };
    };
    const before = span();
    fingers.current.set(id, { x, y });
    const after = span();
    if (before.size < 20 || after.size < 20) return; // one finger above the other
    const moved = panned(axes.x, (before.middle - after.middle) / area.current.width, whole);
    const scale = { from: moved[0], to: moved[1], isLog: isLogX };
    setX(zoomed(scale, placeX(after.middle), before.size / after.size, whole));
    hover.value = null;
  };

  // A wheel with Ctrl, or two fingers on a touchpad, zooms; browsers send both as the same event.
  const onWheel = useRef((_: WheelEvent) => {});
  onWheel.current = (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const factor = Math.exp(Math.max(-50, Math.min(50, event.deltaY)) / 150);
    setX(zoomed(axes.x, Math.max(0, Math.min(1, placeX(at(event).x))), factor, whole));
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
    else if (event.key === ' ' && now?.key) props.onMark(now.key === marked ? '' : now.key);
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

  const show = (one: Drawn, x: number) => {
    const py = toY(area.current, axes.y)(heightOf(one, x));
    const px = toX(area.current, axes.x)(x);
    const near = nearLines(
      shown.map((other) => other.line),
      x,
      px,
      py,
      toX(area.current, axes.x),
      toY(area.current, axes.y),
    ).map(({ line }) => shown[line]!.key);
    hover.value = {
      chart: metric,
      x,
      key: one.key,
      near: [one.key, ...near.filter((key) => key !== one.key)].slice(0, LISTED),
    };
  };

  const onLeave = (event: PointerEvent) => {
    if (event.pointerType !== 'touch' && hover.peek()?.chart === metric) hover.value = null;
  };

  const isZoomed = zoom !== null || yZoom !== null;
  const name = visible(metric);
  return (
    <div
      ref={box}
      class="plot"
      style={{ height: `${height}px` }}
      tabIndex={0}
      role="group"
      aria-label={`Chart of ${name}: arrow keys move the cursor, + and - zoom, Shift and arrow keys pan, 0 resets`}
      onPointerDown={onPointerDown}
      onPointerMove={onPointerMove}
      onPointerUp={onPointerUp}
      onPointerCancel={(event) => {
        onPointerUp(event);
        hover.value = null;
      }}
      onPointerLeave={onLeave}
      onDblClick={reset}
      onKeyDown={onKeyDown}
      onBlur={() => hover.peek()?.chart === metric && (hover.value = null)}
    >
      <canvas
        ref={below}
        role="img"
        aria-label={`${name} of ${shown.length} ${shown.length === 1 ? 'line' : 'lines'}`}
      />
      <canvas ref={above} aria-hidden="true" />
      {isZoomed && (
        <button
          class="reset"
          onPointerDown={(event) => event.stopPropagation()}
          onClick={reset}
          title="Show everything (double-click, or the key 0)"
        >
          Reset zoom
        </button>
      )}
      <Tip
        hover={hover}
        metric={metric}
        shown={shown}
        isTime={isTime}
        width={width}
        pixel={(x) => toX(area.current, axes.x)(x)}
      />
    </div>
  );
}

/** The height of a line at a point; at its nearest point outside of the line. */
function heightOf({ line }: Drawn, x: number): number {
  const y = heightAt(line, x);
  if (Number.isFinite(y)) return y;
  const i = nearestIndex(line, x);
  return i < 0 ? NaN : line.ys[i]!;
}

/** The value of the line that stands out, in the charts without the pointer. */
export function Readout({
  hover,
  metric,
  drawn,
  marked,
}: {
  hover: Signal<Hover | null>;
  metric: string;
  drawn: Drawn[];
  marked: string;
}) {
  const at = hover.value;
  if (!at || at.x === null || at.chart === metric) return null;
  const one = drawn.find(({ key }) => key === (at.key ?? marked));
  const i = one ? nearestIndex(one.line, at.x) : -1;
  return i < 0 ? null : <span class="num readout">{value(one!.line.ys[i])}</span>;
}

/** The values of the lines next to the pointer, from top to bottom. */
function Tip({
  hover,
  metric,
  shown,
  isTime,
  width,
  pixel,
}: {
  hover: Signal<Hover | null>;
  metric: string;
  shown: Drawn[];
  isTime: boolean;
  width: number;
  pixel(x: number): number;
}) {
  const at = hover.value;
  if (!at || at.x === null || at.chart !== metric) return null;
  const rows = at.near
    .map((key) => shown.find((one) => one.key === key))
    .filter((one): one is Drawn => one !== undefined)
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
  const px = pixel(at.x);
  const place =
    px < width / 2
      ? { left: `${Math.round(px) + 12}px` }
      : { right: `${Math.round(width - px) + 12}px` };
  const more = shown.length - rows.length;
  const detail = rows.find(({ one }) => one.key === at.key)?.one.detail;
  return (
    <output class="tip num" style={place}>
      <b>{isTime ? duration(at.x) : `step ${value(at.x)}`}</b>
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
