// Line charts over time or steps. uPlot draws axes and lines; this component adds the tooltip of the
// nearest point, which works with a mouse and with touch.
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { bytes, clock, duration, value } from '../format';
import { color, isDark } from '../theme';
import type { Point } from '../types';
import { aligned } from './align';
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
const FONT = '11px system-ui, sans-serif';
const LEFT = 52; // pixels for the labels of the y axis
const RIGHT = 22; // half a label of the x axis
const TOP = 8;
const BOTTOM = 20;
const HIT_DISTANCE = 60;

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

function lineColor(line: Line, i: number): string {
  if (line.shade === undefined) return color(COLORS[i % COLORS.length]!);
  return line.shade === null ? color('ink-3') : shade(line.shade);
}

export function Chart({ label, lines, unit, isTime, height = 140, fromZero, max, least }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [found, setHit] = useState<Hit | null>(null);
  // The lines may have changed since the pointer moved.
  const hit = found && lines[found.line]?.points.includes(found.point) ? found : null;

  const [x0, x1] = extent(lines, 0);
  const [low, high] = extent(lines, 1);
  const [y0, y1] = span(low, high, { fromZero, max, least });
  // The callbacks of uPlot read the values of the latest rendering.
  const latest = useRef({ lines, hit, x0, x1, y0, y1 });
  latest.current = { lines, hit, x0, x1, y0, y1 };

  const dashes = lines.map((line) => (line.isDashed ? '-' : '.')).join('');
  useLayoutEffect(() => {
    const node = box.current!;
    const gray = () => color('ink-3');
    const options: uPlot.Options = {
      width: Math.max(1, node.clientWidth),
      height,
      padding: [TOP, RIGHT, 0, 0],
      legend: { show: false },
      cursor: { show: false },
      scales: {
        x: { time: false, range: () => [latest.current.x0, upper(latest.current)] },
        y: { range: () => [latest.current.y0, latest.current.y1] },
      },
      axes: [
        {
          size: BOTTOM,
          gap: 4,
          font: FONT,
          stroke: gray,
          grid: { show: false },
          ticks: { show: false },
          splits: (u) => {
            const wanted = (u.width - LEFT) / 76;
            const { x0, x1 } = latest.current;
            return isTime ? timeTicks(x0, x1, wanted) : ticks(x0, x1, wanted);
          },
          values: (_, marks) => {
            const { x0, x1 } = latest.current;
            return marks.map((x) => (isTime ? timeText(x, x1 - x0) : value(x)));
          },
        },
        {
          size: LEFT,
          gap: 6,
          font: FONT,
          stroke: gray,
          grid: { stroke: () => color('line'), width: 1 },
          ticks: { show: false },
          splits: () => {
            const { y0, y1 } = latest.current;
            return ticks(y0, y1, Math.max(2, (height - TOP - BOTTOM) / 34), unit);
          },
          values: (_, marks) => marks.map((y) => inUnit(unit, y, digitsFor(marks))),
        },
      ],
      series: [
        {},
        ...[...dashes].map((dash, i) => ({
          stroke: () => lineColor(latest.current.lines[i]!, i),
          width: 1.5,
          dash: dash === '-' ? [4, 3] : undefined,
          points: { show: () => latest.current.lines[i]!.points.length === 1, size: 4 },
        })),
      ],
      hooks: { draw: [(u) => drawHit(u, latest.current.hit)] },
    };
    const made = new uPlot(options, aligned(lines, y1), node);
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
  }, [dashes, height, unit, isTime]);

  useLayoutEffect(() => {
    plot.current!.setData(aligned(lines, y1));
  }, [lines, y1]);

  const text = `${label}, from ${inUnit(unit, low)} to ${inUnit(unit, high)}`;
  useLayoutEffect(() => {
    plot.current!.ctx.canvas.setAttribute('aria-label', text);
  }, [text, dashes, height, unit, isTime]);

  // The nearest line stands out.
  const dark = isDark.value;
  useEffect(() => {
    const u = plot.current!;
    u.series.slice(1).forEach((series, i) => {
      const isFaint = hit !== null && lines.length > 1 && hit.line !== i;
      series.alpha = isFaint ? 0.2 : lines.length > 20 ? 0.7 : 1;
      series.width = hit?.line === i && lines.length > 1 ? 2.5 : 1.5;
    });
    u.redraw(false, true);
  }, [hit, dark, dashes, height]);

  const onPointerMove = (event: PointerEvent) => {
    const u = plot.current!;
    const area = u.over.getBoundingClientRect();
    const x = event.clientX - area.left;
    const y = event.clientY - area.top;
    let best: Hit | null = null;
    let least = HIT_DISTANCE ** 2;
    lines.forEach((line, i) => {
      for (const point of line.points) {
        if (point[1] === null) continue;
        const dx = u.valToPos(point[0], 'x') - x;
        const dy = lines.length > 1 ? u.valToPos(point[1], 'y') - y : 0;
        if (dx * dx + dy * dy < least) {
          least = dx * dx + dy * dy;
          best = { line: i, point };
        }
      }
    });
    setHit(best);
  };

  const u = plot.current;
  const where =
    hit &&
    (isTime ? clock(new Date(hit.point[0] * 1000).toISOString()) : `step ${value(hit.point[0])}`);
  return (
    <div
      class="chart"
      style={{ height: `${height}px` }}
      ref={box}
      onPointerMove={onPointerMove}
      onPointerLeave={() => setHit(null)}
    >
      {hit && u && (
        <output
          class="num"
          style={{
            left: `${Math.min(LEFT + u.valToPos(hit.point[0], 'x') + 8, u.width - 130)}px`,
          }}
        >
          <b>{inUnit(unit, hit.point[1])}</b>{' '}
          {lines.length > 1 && `${lines[hit.line]?.label ?? ''} · `}
          {where}
        </output>
      )}
    </div>
  );
}

/** The upper end of the x axis; uPlot needs one that is above the lower end. */
const upper = ({ x0, x1 }: { x0: number; x1: number }) => (x1 > x0 ? x1 : x0 + 1);

/** Mark the point next to the pointer. */
function drawHit(u: uPlot, hit: Hit | null): void {
  if (!hit) return;
  u.ctx.fillStyle = color('ink');
  u.ctx.beginPath();
  const x = u.valToPos(hit.point[0], 'x', true);
  const y = u.valToPos(hit.point[1] ?? 0, 'y', true);
  u.ctx.arc(x, y, 3.5 * devicePixelRatio, 0, 2 * Math.PI);
  u.ctx.fill();
}
