// Line charts over time or steps, drawn on a canvas.
import { useEffect, useRef, useState } from 'preact/hooks';
import { bytes, clock, duration, value } from '../format';
import { color, isDark } from '../theme';
import type { Point } from '../types';
import { shade } from './shades';
import { digitsFor, span, ticks, timeText, timeTicks } from './ticks';

export interface Line {
  label: string;
  points: Point[];
  /** The rank, 0 (best) to 1, that sets the color; null if there is none. */
  shade?: number | null;
  /** For trials that failed or have no result. */
  isDashed?: boolean;
}

interface Props {
  label: string;
  lines: Line[];
  unit?: string;
  isTime?: boolean;
  height?: number;
  fromZero?: boolean;
  max?: number;
  /** A lower bound for the upper end of the axis. */
  least?: number;
}

interface Hit {
  line: number;
  point: Point;
}

const COLORS = ['c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7', 'c8'];
const LEFT = 52;
const RIGHT = 10;
const TOP = 8;
const BOTTOM = 20;

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

/** The range of the finite values. */
function extent(lines: Line[], part: 0 | 1): [number, number] {
  let low = Infinity;
  let high = -Infinity;
  for (const line of lines) {
    for (const point of line.points) {
      const x = point[part];
      if (x === null || !Number.isFinite(x)) continue;
      if (x < low) low = x;
      if (x > high) high = x;
    }
  }
  return low <= high ? [low, high] : [0, 1];
}

export function Chart({ label, lines, unit, isTime, height = 140, fromZero, max, least }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [found, setHit] = useState<Hit | null>(null);
  const hit = found && lines[found.line]?.points.includes(found.point) ? found : null; // the lines may have changed
  void isDark.value; // redraw when the theme changes

  const [x0, x1] = extent(lines, 0);
  const [low, high] = extent(lines, 1);
  const [y0, y1] = span(low, high, { fromZero, max, least });
  const px = (x: number) => LEFT + ((x - x0) / (x1 - x0 || 1)) * (width - LEFT - RIGHT);
  const py = (y: number) => height - BOTTOM - ((y - y0) / (y1 - y0 || 1)) * (height - TOP - BOTTOM);

  useEffect(() => {
    const node = canvas.current!.parentElement!;
    const watch = new ResizeObserver(() => setWidth(node.clientWidth));
    watch.observe(node);
    return () => watch.disconnect();
  }, []);

  useEffect(() => {
    const node = canvas.current!;
    const pen = node.getContext('2d');
    if (!pen || !width) return;
    const ratio = devicePixelRatio || 1;
    node.width = width * ratio;
    node.height = height * ratio;
    pen.scale(ratio, ratio);
    pen.font = '11px system-ui, sans-serif';
    drawAxes(pen);
    lines.forEach((line, i) => {
      const isFaint = hit !== null && lines.length > 1 && hit.line !== i;
      pen.globalAlpha = isFaint ? 0.2 : lines.length > 20 ? 0.7 : 1;
      pen.setLineDash(line.isDashed ? [4, 3] : []);
      drawLine(pen, line.points, inkOf(line, i), hit?.line === i && lines.length > 1 ? 2.5 : 1.5);
    });
    pen.setLineDash([]);
    pen.globalAlpha = 1;
    if (hit) {
      pen.fillStyle = color('ink');
      pen.beginPath();
      pen.arc(px(hit.point[0]), py(hit.point[1] ?? 0), 3.5, 0, 7);
      pen.fill();
    }
  });

  const inkOf = (line: Line, i: number) => {
    if (line.shade === undefined) return color(COLORS[i % COLORS.length]!);
    return line.shade === null ? color('ink-3') : shade(line.shade);
  };

  const drawAxes = (pen: CanvasRenderingContext2D) => {
    pen.strokeStyle = color('line');
    pen.fillStyle = color('ink-3');
    pen.lineWidth = 1;
    pen.textAlign = 'right';
    const marks = ticks(y0, y1, Math.max(2, (height - TOP - BOTTOM) / 34), unit);
    for (const y of marks) {
      const at = Math.round(py(y)) + 0.5;
      pen.beginPath();
      pen.moveTo(LEFT, at);
      pen.lineTo(width - RIGHT, at);
      pen.stroke();
      pen.fillText(inUnit(unit, y, digitsFor(marks)), LEFT - 6, at + 4);
    }
    const wanted = (width - LEFT) / 76;
    pen.textAlign = 'center';
    for (const x of isTime ? timeTicks(x0, x1, wanted) : ticks(x0, x1, wanted)) {
      const text = isTime ? timeText(x, x1 - x0) : value(x);
      // Keep the last label inside the canvas.
      const half = pen.measureText(text).width / 2;
      pen.fillText(text, Math.min(px(x), width - half - 1), height - 5);
    }
  };

  const drawLine = (
    pen: CanvasRenderingContext2D,
    points: Point[],
    ink: string,
    weight: number,
  ) => {
    pen.strokeStyle = pen.fillStyle = ink;
    pen.lineWidth = weight;
    pen.lineJoin = 'round';
    pen.beginPath();
    let isDown = false;
    for (const [x, y] of points) {
      if (y === null || !Number.isFinite(y)) {
        isDown = false; // leave a gap where nothing was measured
        continue;
      }
      if (isDown) pen.lineTo(px(x), py(Math.min(y, y1)));
      else pen.moveTo(px(x), py(Math.min(y, y1)));
      isDown = true;
    }
    pen.stroke();
    if (points.length === 1 && points[0]![1] !== null)
      pen.fillRect(px(points[0]![0]) - 2, py(points[0]![1]) - 2, 4, 4);
  };

  const onMove = (event: PointerEvent) => {
    let best: Hit | null = null;
    let least = Infinity;
    lines.forEach((line, i) => {
      for (const point of line.points) {
        if (point[1] === null) continue;
        const dx = Math.abs(px(point[0]) - event.offsetX);
        const dy = lines.length > 1 ? Math.abs(py(point[1]) - event.offsetY) : 0;
        if (dx * dx + dy * dy < least) {
          least = dx * dx + dy * dy;
          best = { line: i, point };
        }
      }
    });
    setHit(least < 3600 ? best : null);
  };

  const where =
    hit &&
    (isTime ? clock(new Date(hit.point[0] * 1000).toISOString()) : `step ${value(hit.point[0])}`);
  return (
    <div class="chart">
      <canvas
        ref={canvas}
        role="img"
        aria-label={`${label}, from ${inUnit(unit, low)} to ${inUnit(unit, high)}`}
        style={{ width: `${width}px`, height: `${height}px` }}
        onPointerMove={onMove}
        onPointerLeave={() => setHit(null)}
      />
      {hit && (
        <output class="num" style={{ left: `${Math.min(px(hit.point[0]) + 8, width - 130)}px` }}>
          <b>{inUnit(unit, hit.point[1])}</b>{' '}
          {lines.length > 1 && `${lines[hit.line]?.label ?? ''} · `}
          {where}
        </output>
      )}
    </div>
  );
}
