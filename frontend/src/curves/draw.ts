// Draw curves on a canvas: axes and lines on one layer, the cursor and the line that stands out on a
// second one above it, so that a moving pointer does not draw all lines again.
import { color } from '../theme';
import { type Range, type Scale, placeOf, tickText, ticksOf } from './scale';
import { type Series, extentOf, firstNotBelow, nearestIndex } from './series';

/** One line: a run, or the mean of a group with the band between its lowest and highest values. */
export interface Drawn {
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

/** The plot area in CSS pixels. */
export interface Area {
  left: number;
  top: number;
  width: number;
  height: number;
}

export interface Axes {
  x: Scale;
  y: Scale;
  isTime: boolean;
}

const FONT = '11px system-ui, sans-serif';
const TOP = 8;
const RIGHT = 14;
const BOTTOM = 22;
const MANY = 12; // lines; with more than these, raw values would hide the smoothed ones

/** The range of all x values, also of those that are hidden, so that hiding does not move the axis. */
export function xExtent(drawn: readonly Drawn[], isLog: boolean): Range | null {
  return extentOf(
    drawn.flatMap((one) => [one.line.xs, ...(one.raw ? [one.raw.xs] : [])]),
    isLog,
  );
}

/** The range of the y values between two x values. */
export function yExtent(drawn: readonly Drawn[], isLog: boolean, x: Scale): Range | null {
  let found: Range | null = null;
  const add = (series: Series) => {
    // One point more at both ends: the line to it is visible, too.
    const first = Math.max(0, firstNotBelow(series.xs, x.from) - 1);
    const last = Math.min(series.xs.length, firstNotBelow(series.xs, x.to) + 1);
    const range = extentOf([series.ys.subarray(first, last)], isLog);
    if (range)
      found = found
        ? [Math.min(found[0], range[0]), Math.max(found[1], range[1])]
        : [range[0], range[1]];
  };
  for (const one of drawn) {
    add(one.line);
    if (one.band) {
      add(one.band.low);
      add(one.band.high);
    }
  }
  return found;
}

export const toX =
  ({ left, width }: Area, scale: Scale) =>
  (x: number) =>
    left + placeOf(scale, x) * width;
export const toY =
  ({ top, height }: Area, scale: Scale) =>
  (y: number) =>
    top + (1 - placeOf(scale, y)) * height;

/** The plot area: as much room at the left as the longest label needs. */
export function areaOf(
  context: CanvasRenderingContext2D,
  width: number,
  height: number,
  y: Scale,
): Area {
  context.font = FONT;
  const labels = ticksOf(y, yTicks(height)).map((mark) => tickText(mark, false));
  const wide = Math.max(28, ...labels.map((text) => context.measureText(text).width));
  const left = Math.min(84, Math.ceil(wide) + 14);
  return {
    left,
    top: TOP,
    width: Math.max(1, width - left - RIGHT),
    height: Math.max(1, height - TOP - BOTTOM),
  };
}

const yTicks = (height: number) => Math.max(2, (height - TOP - BOTTOM) / 40);

/** Set the size of a canvas for the resolution of the screen, and clear it. */
export function prepare(
  canvas: HTMLCanvasElement,
  width: number,
  height: number,
): CanvasRenderingContext2D {
  const ratio = devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
  const context = canvas.getContext('2d')!;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

export function drawLines(
  context: CanvasRenderingContext2D,
  area: Area,
  axes: Axes,
  drawn: readonly Drawn[],
  height: number,
): void {
  drawAxes(context, area, axes, height);
  context.save();
  clip(context, area);
  const isMany = drawn.length > MANY;
  for (const one of drawn) if (one.band) fillBand(context, area, axes, one, 0.16);
  context.lineJoin = 'round';
  for (const one of drawn)
    if (one.raw)
      strokeLine(context, area, axes, one.raw, {
        color: one.color,
        alpha: isMany ? 0.1 : 0.25,
        width: 1,
      });
  for (const one of drawn)
    strokeLine(context, area, axes, one.line, {
      color: one.color,
      alpha: isMany ? 0.75 : 1,
      width: one.band ? 2 : 1.5,
      isDashed: one.isDashed,
    });
  context.restore();
}

function clip(context: CanvasRenderingContext2D, { left, top, width, height }: Area): void {
  context.beginPath();
  context.rect(left, top - 1, width + 1, height + 2);
  context.clip();
}

function drawAxes(
  context: CanvasRenderingContext2D,
  area: Area,
  { x, y, isTime }: Axes,
  height: number,
): void {
  const { left, top, width } = area;
  const bottom = top + area.height;
  context.font = FONT;
  context.fillStyle = color('ink-3');
  context.strokeStyle = color('line');
  context.lineWidth = 1;
  context.textBaseline = 'middle';
  context.textAlign = 'right';
  const yOf = toY(area, y);
  for (const mark of ticksOf(y, yTicks(height))) {
    const at = Math.round(yOf(mark)) + 0.5;
    context.beginPath();
    context.moveTo(left, at);
    context.lineTo(left + width, at);
    context.stroke();
    context.fillText(tickText(mark, false), left - 7, at);
  }
  context.textBaseline = 'top';
  context.textAlign = 'center';
  const xOf = toX(area, x);
  let end = -Infinity; // of the last label, so that labels do not touch
  for (const mark of ticksOf(x, Math.max(2, width / 84), isTime)) {
    const text = tickText(mark, isTime);
    const half = context.measureText(text).width / 2;
    const at = Math.min(xOf(mark), left + width + RIGHT - half - 2);
    if (at - half < end + 8) continue;
    context.fillText(text, at, bottom + 7);
    end = at + half;
  }
  context.strokeStyle = color('line-2');
  context.beginPath();
  context.moveTo(left, Math.round(bottom) + 0.5);
  context.lineTo(left + width, Math.round(bottom) + 0.5);
  context.stroke();
}

interface Stroke {
  color: string;
  alpha: number;
  width: number;
  isDashed?: boolean;
}

function strokeLine(
  context: CanvasRenderingContext2D,
  area: Area,
  { x, y }: Axes,
  { xs, ys }: Series,
  stroke: Stroke,
): void {
  const xOf = toX(area, x);
  const yOf = toY(area, y);
  const first = Math.max(0, firstNotBelow(xs, x.from) - 1);
  const last = Math.min(xs.length, firstNotBelow(xs, x.to) + 1);
  context.globalAlpha = stroke.alpha;
  context.strokeStyle = context.fillStyle = stroke.color;
  context.lineWidth = stroke.width;
  context.setLineDash(stroke.isDashed ? [4, 3] : []);
  context.beginPath();
  let isOpen = false;
  let points = 0;
  let lastX = 0;
  let lastY = 0;
  for (let i = first; i < last; i++) {
    const px = xOf(xs[i]!);
    const py = yOf(ys[i]!);
    // Not measured, or not positive on a log axis.
    if (!Number.isFinite(py) || !Number.isFinite(px)) {
      isOpen = false;
      continue;
    }
    if (isOpen) context.lineTo(px, py);
    else context.moveTo(px, py);
    isOpen = true;
    points++;
    [lastX, lastY] = [px, py];
  }
  context.stroke();
  context.setLineDash([]);
  if (points === 1) dot(context, lastX, lastY, 2.5);
  context.globalAlpha = 1;
}

function fillBand(
  context: CanvasRenderingContext2D,
  area: Area,
  { x, y }: Axes,
  one: Drawn,
  alpha: number,
): void {
  const { low, high } = one.band!;
  const xOf = toX(area, x);
  const bottom = area.top + area.height;
  const yOf = (v: number) => {
    const at = toY(area, y)(v);
    return at === Infinity || (y.isLog && v <= 0) ? bottom + 50 : at;
  };
  context.globalAlpha = alpha;
  context.fillStyle = one.color;
  context.beginPath();
  const isShown = (series: Series, i: number) =>
    Number.isFinite(series.ys[i]!) && Number.isFinite(xOf(series.xs[i]!));
  for (let i = 0; i < high.xs.length; i++)
    if (isShown(high, i)) context.lineTo(xOf(high.xs[i]!), yOf(high.ys[i]!));
  for (let i = low.xs.length - 1; i >= 0; i--)
    if (isShown(low, i)) context.lineTo(xOf(low.xs[i]!), yOf(low.ys[i]!));
  context.closePath();
  context.fill();
  context.globalAlpha = 1;
}

function dot(context: CanvasRenderingContext2D, x: number, y: number, radius: number): void {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fill();
}

export interface Cursor {
  /** The x value below the pointer; null: the pointer is elsewhere. */
  x: number | null;
  /** The lines that stand out. */
  keys: string[];
  /** The part that is being selected, in CSS pixels. */
  box: { left: number; top: number; right: number; bottom: number } | null;
}

/** Draw the layer above the lines. */
export function drawCursor(
  context: CanvasRenderingContext2D,
  area: Area,
  axes: Axes,
  drawn: readonly Drawn[],
  cursor: Cursor,
): void {
  const { left, top, width, height } = area;
  const bright = drawn.filter((one) => cursor.keys.includes(one.key));
  context.save();
  clip(context, area);
  if (bright.length && drawn.length > bright.length) {
    // Fade the other lines.
    context.globalAlpha = 0.66;
    context.fillStyle = color('panel');
    context.fillRect(left, top - 1, width + 1, height + 1);
    context.globalAlpha = 1;
  }
  for (const one of bright) {
    if (one.band) fillBand(context, area, axes, one, 0.25);
    if (one.raw)
      strokeLine(context, area, axes, one.raw, { color: one.color, alpha: 0.3, width: 1 });
    strokeLine(context, area, axes, one.line, {
      color: one.color,
      alpha: 1,
      width: 2.5,
      isDashed: one.isDashed,
    });
  }
  if (cursor.x !== null) {
    const at = Math.round(toX(area, axes.x)(cursor.x)) + 0.5;
    context.strokeStyle = color('ink-3');
    context.lineWidth = 1;
    context.setLineDash([2, 3]);
    context.beginPath();
    context.moveTo(at, top);
    context.lineTo(at, top + height);
    context.stroke();
    context.setLineDash([]);
    for (const one of bright.length ? bright : drawn.length === 1 ? drawn : []) {
      const i = nearestIndex(one.line, cursor.x);
      if (i < 0) continue;
      const px = toX(area, axes.x)(one.line.xs[i]!);
      const py = toY(area, axes.y)(one.line.ys[i]!);
      if (!Number.isFinite(px) || !Number.isFinite(py)) continue;
      context.fillStyle = color('panel');
      dot(context, px, py, 5);
      context.fillStyle = one.color;
      dot(context, px, py, 3.5);
    }
  }
  if (cursor.box) {
    const { box } = cursor;
    context.fillStyle = context.strokeStyle = color('focus');
    context.globalAlpha = 0.12;
    context.fillRect(box.left, box.top, box.right - box.left, box.bottom - box.top);
    context.globalAlpha = 0.8;
    context.lineWidth = 1;
    context.strokeRect(
      Math.round(box.left) + 0.5,
      Math.round(box.top) + 0.5,
      Math.round(box.right - box.left),
      Math.round(box.bottom - box.top),
    );
  }
  context.restore();
}
