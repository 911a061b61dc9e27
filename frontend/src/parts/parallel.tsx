// A parallel-coordinates chart: one line per trial through its parameters to its metric, colored by
// rank. Dragging along an axis selects the trials that pass through that range.
import { useEffect, useRef, useState } from 'preact/hooks';
import { value } from '../format';
import { color, isDark } from '../theme';
import type { Ranks } from './ranks';
import { shade } from './shades';
import { ticks } from './ticks';

type Row = Record<string, unknown>;

export interface Range {
  low: number; // 0..1, from the bottom of the axis
  high: number;
  has(row: Row): boolean;
}

interface Axis {
  name: string;
  at(row: Row): number | null; // 0..1
  ticks: { at: number; text: string }[];
}

const TOP = 30;
const BOTTOM = 14;
const SIDE = 46;
const HEIGHT = 280;

/** Ticks of a log axis: powers of ten, and 3 times those if the range is short. */
function decades(low: number, high: number): number[] {
  const found: number[] = [];
  const isShort = high / low < 1000;
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    for (const n of isShort ? [1, 3] : [1]) {
      const x = Number((n * 10 ** power).toPrecision(3));
      if (x >= low && x <= high) found.push(x);
    }
  }
  return found;
}

function axisOf(name: string, rows: Row[]): Axis {
  const values = rows.map((row) => row[name]).filter((x) => x !== null && x !== undefined);
  // Parameter values are stored as typed, so numbers may be strings.
  const numbers = values.map((x) => (typeof x === 'boolean' || x === '' ? NaN : Number(x)));
  if (values.length && numbers.every(Number.isFinite)) {
    const low = Math.min(...numbers);
    const high = Math.max(...numbers);
    const isLog = low > 0 && high / low > 50;
    const scale = (x: number) => (isLog ? Math.log(x) : x);
    const span = scale(high) - scale(low);
    const at = (x: number) => (span ? (scale(x) - scale(low)) / span : 0.5);
    const distinct = [...new Set(numbers)];
    const shown =
      distinct.length <= 6 ? distinct : isLog ? decades(low, high) : ticks(low, high, 5);
    return {
      name,
      at: (row) =>
        row[name] == null || !Number.isFinite(Number(row[name])) ? null : at(Number(row[name])),
      ticks: shown.map((x) => ({ at: at(x), text: short(x) })),
    };
  }
  const words = [...new Set(values.map(value))];
  const at = new Map(
    words.map((word, i) => [word, words.length > 1 ? i / (words.length - 1) : 0.5]),
  );
  return {
    name,
    at: (row) => (row[name] == null ? null : (at.get(value(row[name])) ?? null)),
    ticks: words.length <= 12 ? words.map((text) => ({ at: at.get(text)!, text })) : [],
  };
}

const short = (x: number) =>
  x !== 0 && Math.abs(x) < 0.001
    ? x.toExponential().replace('e-0', 'e-')
    : value(Number(x.toPrecision(3)));

export function Parallel({
  rows,
  axes: names,
  metric,
  goal,
  ranks,
  ranges,
  onRanges,
}: {
  rows: Row[];
  axes: string[];
  metric: string;
  goal: string;
  /** The rank of each trial, 0 (best) to 1; failed trials and trials without a result have none. */
  ranks: Ranks;
  ranges: Record<string, Range>;
  onRanges(ranges: Record<string, Range>): void;
}) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(600);
  const [hover, setHover] = useState<Row | null>(null);
  const dragged = useRef<{ axis: Axis; from: number } | null>(null);
  const axes = names.map((name) => axisOf(name, rows));
  const dark = isDark.value;
  const x = (i: number) => SIDE + (i * (width - 2 * SIDE)) / Math.max(1, axes.length - 1);
  const y = (at: number) => HEIGHT - BOTTOM - at * (HEIGHT - TOP - BOTTOM);
  const isIn = (row: Row) => Object.values(ranges).every((range) => range.has(row));

  useEffect(() => {
    const node = canvas.current?.parentElement;
    if (!node) return;
    const watch = new ResizeObserver(() => setWidth(node.clientWidth));
    watch.observe(node);
    return () => watch.disconnect();
  }, []);

  useEffect(() => {
    const node = canvas.current;
    const ctx = node?.getContext('2d');
    if (!node || !ctx) return;
    const ratio = devicePixelRatio || 1;
    node.width = width * ratio;
    node.height = HEIGHT * ratio;
    ctx.scale(ratio, ratio);
    const rankOf = (row: Row) => ranks.get(Number(row.trial)) ?? null;
    const drawTrial = (row: Row) => {
      ctx.beginPath();
      let isDown = false;
      axes.forEach((axis, i) => {
        const at = axis.at(row);
        if (at === null) isDown = false;
        else if (isDown) ctx.lineTo(x(i), y(at));
        else ctx.moveTo(x(i), y(at));
        if (at !== null) isDown = true;
      });
      ctx.stroke();
    };
    ctx.lineWidth = rows.length > 200 ? 1 : 1.5;
    for (const row of rows) {
      if (isIn(row)) continue;
      ctx.globalAlpha = 0.35;
      ctx.strokeStyle = color('line');
      drawTrial(row);
    }
    // Draw the best trials last, on top.
    const selected = rows.filter(isIn).sort((a, b) => (rankOf(b) ?? 2) - (rankOf(a) ?? 2));
    ctx.globalAlpha = selected.length > 200 ? 0.5 : 0.85;
    for (const row of selected) {
      const rank = rankOf(row);
      ctx.strokeStyle = rank === null ? color('ink-3') : shade(rank);
      ctx.setLineDash(rank === null ? [4, 3] : []);
      drawTrial(row);
    }
    ctx.setLineDash([]);
    ctx.globalAlpha = 1;
    if (hover && isIn(hover)) {
      ctx.lineWidth = 2.5;
      ctx.strokeStyle = color('ink');
      drawTrial(hover);
      ctx.lineWidth = 1;
    }
    ctx.font = '11px system-ui, sans-serif';
    axes.forEach((axis, i) => {
      ctx.strokeStyle = color('line-2');
      ctx.lineWidth = 1;
      ctx.beginPath();
      ctx.moveTo(x(i), y(0));
      ctx.lineTo(x(i), y(1));
      ctx.stroke();
      const range = ranges[axis.name];
      if (range) {
        ctx.fillStyle = color('focus');
        ctx.fillRect(x(i) - 2.5, y(range.high), 5, Math.max(2, y(range.low) - y(range.high)));
      }
      const isLast = i === axes.length - 1 && i > 0;
      ctx.textAlign = i === 0 ? 'left' : isLast ? 'right' : 'center';
      ctx.fillStyle = color('ink');
      ctx.fillText(
        axis.name,
        i === 0 ? 4 : isLast ? width - 4 : x(i),
        14,
        Math.max(60, width / axes.length - 8),
      );
      ctx.textAlign = isLast ? 'left' : 'right';
      ctx.fillStyle = color('ink-2');
      for (const tick of axis.ticks) {
        const text = tick.text.length > 8 ? `${tick.text.slice(0, 7)}…` : tick.text;
        const place: [number, number] = [x(i) + (isLast ? 6 : -6), y(tick.at) + 4];
        ctx.strokeStyle = color('panel'); // a halo keeps the text readable on top of lines
        ctx.lineWidth = 3;
        ctx.strokeText(text, ...place);
        ctx.fillText(text, ...place);
      }
    });
  });

  const nearest = (event: PointerEvent): Row | null => {
    const i = Math.min(
      axes.length - 2,
      Math.max(0, Math.floor(((event.offsetX - SIDE) / (width - 2 * SIDE)) * (axes.length - 1))),
    );
    const share = (event.offsetX - x(i)) / Math.max(1, x(i + 1) - x(i));
    let best: Row | null = null;
    let least = 10;
    for (const row of rows) {
      const a = axes[i]?.at(row);
      const b = axes[i + 1]?.at(row);
      if (a == null || b == null || !isIn(row)) continue;
      const off = Math.abs(y(a + (b - a) * share) - event.offsetY);
      if (off < least) [least, best] = [off, row];
    }
    return best;
  };
  const heightAt = (event: PointerEvent) =>
    Math.max(0, Math.min(1, (HEIGHT - BOTTOM - event.offsetY) / (HEIGHT - TOP - BOTTOM)));

  const onPointerDown = (event: PointerEvent) => {
    const i = axes.findIndex((_, n) => Math.abs(event.offsetX - x(n)) < 14);
    if (i < 0) return;
    canvas.current?.setPointerCapture(event.pointerId);
    dragged.current = { axis: axes[i]!, from: heightAt(event) };
    setHover(null);
    const { [axes[i]!.name]: _, ...rest } = ranges;
    onRanges(rest);
  };
  const onPointerMove = (event: PointerEvent) => {
    if (!dragged.current) return setHover(nearest(event));
    const { axis, from } = dragged.current;
    const to = heightAt(event);
    if (Math.abs(to - from) < 0.02) return;
    const low = Math.min(from, to);
    const high = Math.max(from, to);
    const has = (row: Row) => {
      const at = axis.at(row);
      return at !== null && at >= low - 1e-9 && at <= high + 1e-9;
    };
    onRanges({ ...ranges, [axis.name]: { low, high, has } });
  };

  return (
    <div class="parallel" data-theme-drawn={dark}>
      <canvas
        ref={canvas}
        role="img"
        aria-label={`${rows.length} trials over ${names.join(', ')}; the table below has the same values`}
        style={{ width: `${width}px`, height: `${HEIGHT}px` }}
        onPointerDown={onPointerDown}
        onPointerMove={onPointerMove}
        onPointerUp={() => (dragged.current = null)}
        onPointerLeave={() => setHover(null)}
      />
      <p class="dim num hint">
        {hover
          ? `#${hover.trial}  ${names.map((name) => `${name}=${value(hover[name])}`).join('  ')}`
          : `color: rank by ${metric}, ${goal === 'max' ? 'larger' : 'smaller'} is better and ${isDark.value ? 'brighter' : 'darker'}; dashed: failed, or no result yet`}
      </p>
    </div>
  );
}
