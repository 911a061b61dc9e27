// A parallel-coordinates chart: one line per trial through its parameters and metrics, colored by rank.
// Dragging along an axis selects the trials that pass through that range; the inputs below do the same.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { value } from '../format';
import { isDark } from '../theme';
import { visible } from '../words';
import { type Axis, type Brushes, type Row, brushBetween, isSelected } from './parallel-axes';
import {
  type Layout,
  SIDE,
  drawAxes,
  drawLines,
  placeAt,
  placesOf,
  xOf,
  yOf,
} from './parallel-draw';
import type { Ranks } from './ranks';

const HEIGHT = 300;
const AXIS_WIDTH = 78; // at least; with more axes than fit, the chart scrolls
const NEAR = 14; // pixels around an axis in which a drag brushes it
const TOUCHING = 10; // pixels around a line

export function Parallel({
  rows,
  axes,
  ranks,
  brushes,
  onBrushes,
  legend,
}: {
  rows: Row[];
  axes: Axis[];
  /** The rank of each trial, 0 to 1; failed trials and trials without a result have none. */
  ranks: Ranks;
  brushes: Brushes;
  /** Called when a brush is complete. */
  onBrushes(brushes: Brushes): void;
  legend: string;
}) {
  const box = useRef<HTMLDivElement>(null);
  const below = useRef<HTMLCanvasElement>(null);
  const above = useRef<HTMLCanvasElement>(null);
  const [room, setRoom] = useState(600);
  const [hovered, setHovered] = useState<number | null>(null);
  const [draft, setDraft] = useState<Brushes | null>(null);
  const dragged = useRef<{ axis: Axis; from: number } | null>(null);
  const dark = isDark.value;
  const shown = draft ?? brushes;
  const count = axes.length;
  const width = Math.max(room, 2 * SIDE + (count - 1) * AXIS_WIDTH);
  const layout: Layout = useMemo(() => ({ width, height: HEIGHT, count }), [width, count]);
  const places = useMemo(() => placesOf(rows, axes), [rows, axes]);
  const isIn = useMemo(() => rows.map((row) => isSelected(row, shown)), [rows, shown]);
  const rankOf = useMemo(
    () => rows.map((row) => ranks.get(Number(row.trial)) ?? null),
    [rows, ranks],
  );

  useEffect(() => {
    const node = box.current;
    if (!node) return;
    const watch = new ResizeObserver(() => setRoom(node.clientWidth));
    watch.observe(node);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    if (below.current) drawLines(below.current, layout, places, rankOf, isIn);
  }, [layout, places, rankOf, isIn, dark]);
  useEffect(() => {
    if (above.current) drawAxes(above.current, layout, axes, places, hovered, shown);
  }, [layout, places, axes, hovered, shown, dark]);
  useEffect(() => setHovered(null), [rows, axes]);

  const nearest = (event: PointerEvent): number | null => {
    const step = (width - 2 * SIDE) / Math.max(1, count - 1);
    const i = Math.min(count - 2, Math.max(0, Math.floor((event.offsetX - SIDE) / step)));
    if (i < 0) return null;
    const share = (event.offsetX - xOf(layout, i)) / step;
    let best: number | null = null;
    let least = TOUCHING;
    for (let row = 0; row < rows.length; row++) {
      const a = places[row * count + i]!;
      const b = places[row * count + i + 1]!;
      const off = Math.abs(yOf(layout, a + (b - a) * share) - event.offsetY);
      if (off < least && isIn[row]) [least, best] = [off, row]; // NaN is never less
    }
    return best;
  };

  const onPointerDown = (event: PointerEvent) => {
    if (event.pointerType === 'touch') return setHovered(nearest(event)); // a drag scrolls
    const axis = axes.find((_, i) => Math.abs(event.offsetX - xOf(layout, i)) < NEAR);
    if (!axis) return;
    above.current?.setPointerCapture(event.pointerId);
    dragged.current = { axis, from: placeAt(layout, event.offsetY) };
    setHovered(null);
    const { [axis.name]: _, ...others } = brushes;
    setDraft(others);
  };
  const onPointerMove = (event: PointerEvent) => {
    if (!dragged.current) return setHovered(nearest(event));
    const { axis, from } = dragged.current;
    const to = placeAt(layout, event.offsetY);
    if (Math.abs(to - from) < 0.02) return;
    const { [axis.name]: _, ...others } = brushes;
    const brush = brushBetween(axis, from, to);
    setDraft(brush ? { ...others, [axis.name]: brush } : others);
  };
  const onPointerUp = () => {
    if (dragged.current && draft) onBrushes(draft);
    dragged.current = null;
    setDraft(null);
  };

  const one = hovered === null ? null : rows[hovered];
  const size = { width: `${width}px`, height: `${HEIGHT}px` };
  return (
    <div class="parallel" data-theme-drawn={dark}>
      <div class="parallel-scroll" ref={box}>
        <div class="parallel-stack" style={size}>
          <canvas ref={below} aria-hidden="true" style={size} />
          <canvas
            ref={above}
            role="img"
            aria-label={`${rows.length} trials over ${axes.map((axis) => visible(axis.name)).join(', ')}; the table below has the same values`}
            style={size}
            onPointerDown={onPointerDown}
            onPointerMove={onPointerMove}
            onPointerUp={onPointerUp}
            onPointerCancel={() => {
              dragged.current = null;
              setDraft(null);
            }}
            onPointerLeave={() => setHovered(null)}
          />
        </div>
      </div>
      <p class="dim num hint">
        {one
          ? `#${one.trial}  ${axes.map((axis) => `${visible(axis.name)}=${value(one[axis.name])}`).join('  ')}`
          : legend}
      </p>
    </div>
  );
}
