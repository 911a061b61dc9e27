// Draws a parallel-coordinates chart on two canvases: the lines of all trials, which change only with the
// data and the brushes, and above them the axes and the line below the pointer.
import { color } from '../theme';
import { type Axis, type Brush, type Row, holds, isRange } from './parallel-axes';
import { visible } from '../words';
import { shade } from './shades';

export const TOP = 30;
export const BOTTOM = 14;
export const SIDE = 52;
const SHADES = 24; // lines of about the same rank are drawn as one path

export interface Layout {
  width: number;
  height: number;
  count: number; // of axes
}

export const xOf = ({ width, count }: Layout, i: number) =>
  SIDE + (i * (width - 2 * SIDE)) / Math.max(1, count - 1);
export const yOf = ({ height }: Layout, at: number) =>
  height - BOTTOM - at * (height - TOP - BOTTOM);
export const placeAt = ({ height }: Layout, y: number) =>
  Math.max(0, Math.min(1, (height - BOTTOM - y) / (height - TOP - BOTTOM)));

function cleared(canvas: HTMLCanvasElement, { width, height }: Layout) {
  const ctx = canvas.getContext('2d');
  if (!ctx) return null;
  const ratio = devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  ctx.scale(ratio, ratio);
  return ctx;
}

/** The places of each trial on all axes; NaN where it has no value. */
export function placesOf(rows: Row[], axes: Axis[]): Float32Array {
  const places = new Float32Array(rows.length * axes.length);
  rows.forEach((row, r) =>
    axes.forEach((axis, a) => (places[r * axes.length + a] = axis.at(row[axis.name]) ?? NaN)),
  );
  return places;
}

function addLine(ctx: CanvasRenderingContext2D, layout: Layout, places: Float32Array, row: number) {
  let isDown = false;
  for (let i = 0; i < layout.count; i++) {
    const at = places[row * layout.count + i]!;
    if (Number.isNaN(at)) isDown = false;
    else {
      if (isDown) ctx.lineTo(xOf(layout, i), yOf(layout, at));
      else ctx.moveTo(xOf(layout, i), yOf(layout, at));
      isDown = true;
    }
  }
}

export function drawLines(
  canvas: HTMLCanvasElement,
  layout: Layout,
  places: Float32Array,
  ranks: (number | null)[],
  isIn: boolean[],
): void {
  const ctx = cleared(canvas, layout);
  if (!ctx) return;
  const groups = new Map<number, number[]>(); // -2: not selected, -1: no rank, else a shade
  ranks.forEach((rank, row) => {
    const group = !isIn[row] ? -2 : rank === null ? -1 : Math.round(rank * (SHADES - 1));
    const rows = groups.get(group);
    if (rows) rows.push(row);
    else groups.set(group, [row]);
  });
  const selected = isIn.filter(Boolean).length;
  ctx.lineWidth = selected > 200 ? 1 : 1.5;
  // The best trials are drawn last, on top.
  const order = [...groups.keys()].sort((a, b) => (a < 0 || b < 0 ? a - b : b - a));
  for (const group of order) {
    ctx.globalAlpha = group === -2 ? 0.35 : selected > 200 ? 0.55 : 0.85;
    ctx.strokeStyle =
      group === -2 ? color('line') : group === -1 ? color('ink-3') : shade(group / (SHADES - 1));
    ctx.setLineDash(group === -1 ? [4, 3] : []);
    ctx.beginPath();
    for (const row of groups.get(group)!) addLine(ctx, layout, places, row);
    ctx.stroke();
  }
}

export function drawAxes(
  canvas: HTMLCanvasElement,
  layout: Layout,
  axes: Axis[],
  places: Float32Array,
  hovered: number | null,
  brushes: Record<string, Brush>,
): void {
  const ctx = cleared(canvas, layout);
  if (!ctx) return;
  if (hovered !== null) {
    ctx.lineWidth = 2.5;
    ctx.strokeStyle = color('ink');
    ctx.beginPath();
    addLine(ctx, layout, places, hovered);
    ctx.stroke();
  }
  ctx.font = '11px system-ui, sans-serif';
  const room = layout.count > 1 ? xOf(layout, 1) - xOf(layout, 0) - 8 : layout.width;
  axes.forEach((axis, i) => {
    const x = xOf(layout, i);
    ctx.strokeStyle = color('line-2');
    ctx.lineWidth = 1;
    ctx.beginPath();
    ctx.moveTo(x, yOf(layout, 0));
    ctx.lineTo(x, yOf(layout, 1));
    ctx.stroke();
    const brush = brushes[axis.name];
    if (brush) drawBrush(ctx, layout, axis, brush, x);
    const isLast = i === axes.length - 1 && i > 0;
    ctx.textAlign = 'center';
    ctx.fillStyle = color('ink');
    ctx.fillText(fitted(ctx, visible(axis.name), Math.max(48, room)), x, 14);
    ctx.textAlign = isLast ? 'left' : 'right';
    ctx.fillStyle = color('ink-2');
    for (const tick of axis.ticks) {
      const text = fitted(ctx, tick.text, SIDE - 8);
      const place: [number, number] = [x + (isLast ? 6 : -6), yOf(layout, tick.at) + 4];
      ctx.strokeStyle = color('panel'); // a halo keeps the text readable on top of lines
      ctx.lineWidth = 3;
      ctx.strokeText(text, ...place);
      ctx.fillText(text, ...place);
    }
  });
}

function drawBrush(
  ctx: CanvasRenderingContext2D,
  layout: Layout,
  axis: Axis,
  brush: Brush,
  x: number,
): void {
  ctx.fillStyle = color('focus');
  if (isRange(brush)) {
    const low = yOf(layout, Math.max(0, axis.at(Math.max(axis.low, brush.from)) ?? 0));
    const high = yOf(layout, Math.min(1, axis.at(Math.min(axis.high, brush.to)) ?? 1));
    ctx.fillRect(x - 3, high, 6, Math.max(3, low - high));
    return;
  }
  for (const one of axis.values)
    if (holds(brush, one)) ctx.fillRect(x - 3, yOf(layout, axis.at(one)!) - 5, 6, 10);
}

/** The text with an ellipsis if it is wider than `width`. */
function fitted(ctx: CanvasRenderingContext2D, text: string, width: number): string {
  let shown = text.slice(0, 60);
  if (shown === text && ctx.measureText(text).width <= width) return text;
  while (shown.length > 1 && ctx.measureText(`${shown}…`).width > width) shown = shown.slice(0, -1);
  return `${shown}…`;
}
