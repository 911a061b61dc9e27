// The heat map of the GPUs: one row per GPU, one column per part of the time. It is drawn on a canvas; the
// same in words follows for screen readers.
import { useEffect, useRef, useState } from 'preact/hooks';
import { query } from '../api';
import { color, isDark, isPhone } from '../theme';
import type { HeatMap } from '../types';
import { useFetch } from '../use-fetch';
import { Tabs } from './bits';
import { inUnit } from './chart';
import type { Range } from './time-range';
import { TimeAxis } from './timeline';
import { timeText } from './ticks';

type Measure = HeatMap['measure'];
const MEASURES: { value: Measure; label: string }[] = [
  { value: 'use', label: 'Utilization' },
  { value: 'memory', label: 'Memory' },
  { value: 'power', label: 'Power' },
];
const STOPS = ['heat-0', 'heat-1', 'heat-2', 'heat-3'];

export function GpuHeatMap({ range }: { range: Range }) {
  const [measure, setMeasure] = useState<Measure>('use');
  const columns = isPhone.value ? 48 : 120;
  const path = `/api/timeline/heat${query({
    from: String(Math.round(range.from)),
    to: String(Math.round(range.to)),
    measure,
    columns: String(columns),
  })}`;
  const fetched = useFetch<HeatMap>(path, 60_000);
  const kept = useRef<HeatMap | null>(null);
  if (fetched.data) kept.current = fetched.data;
  const data = kept.current;
  return (
    <section class="heat" aria-label="Heat map of the GPUs">
      <header class="section-head">
        <h2>Use of the GPUs</h2>
        <Tabs<Measure> label="Measure" value={measure} options={MEASURES} onPick={setMeasure} />
        {data && <Scale data={data} />}
      </header>
      {data && <Map data={data} />}
      {!data && fetched.error && <p class="dim">{fetched.error.message}</p>}
    </section>
  );
}

function Scale({ data }: { data: HeatMap }) {
  return (
    <p class="heat-scale num">
      <span>{inUnit(data.unit, 0, 0)}</span>
      <i aria-hidden="true" />
      <span>{inUnit(data.unit, data.high, 0)}</span>
      <span class="heat-none">nothing measured</span>
    </p>
  );
}

function Map({ data }: { data: HeatMap }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [pointed, setCell] = useState<{ row: number; column: number } | null>(null);
  const rows = data.gpus.length;
  const columns = data.gpus[0]?.values.length ?? 0;
  // A narrower screen has fewer columns.
  const cell = pointed && pointed.row < rows && pointed.column < columns ? pointed : null;
  const rowHeight = rows > 16 ? (rows > 64 ? 4 : 7) : 16;
  const dark = isDark.value;

  useEffect(() => {
    const node = canvas.current!;
    const draw = () => {
      const scale = devicePixelRatio;
      node.width = Math.max(1, Math.round(node.clientWidth * scale));
      node.height = Math.max(1, Math.round(rows * rowHeight * scale));
      const context = node.getContext('2d')!;
      const stops = STOPS.map((name) => rgb(color(name)));
      const gap = Math.max(1, Math.round(scale * (rowHeight > 6 ? 1 : 0.5)));
      data.gpus.forEach((gpu, row) => {
        const top = Math.round((row * node.height) / rows);
        const height = Math.round(((row + 1) * node.height) / rows) - top - gap;
        gpu.values.forEach((value, column) => {
          if (value === null) return;
          const left = Math.round((column * node.width) / columns);
          const right = Math.round(((column + 1) * node.width) / columns);
          context.fillStyle = between(stops, value / data.high);
          context.fillRect(left, top, right - left, height);
        });
      });
    };
    draw();
    const watch = new ResizeObserver(draw);
    watch.observe(node);
    return () => watch.disconnect();
  }, [data, dark, rows, rowHeight]);

  const onPointerMove = (event: PointerEvent) => {
    const area = canvas.current!.getBoundingClientRect();
    setCell({
      row: Math.min(rows - 1, Math.floor(((event.clientY - area.top) / area.height) * rows)),
      column: Math.min(
        columns - 1,
        Math.max(0, Math.floor(((event.clientX - area.left) / area.width) * columns)),
      ),
    });
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[
      event.key
    ];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const old = cell ?? { row: 0, column: columns };
    setCell({
      row: Math.max(0, Math.min(rows - 1, old.row + step[0]!)),
      column: Math.max(0, Math.min(columns - 1, old.column + step[1]!)),
    });
  };
  const gpu = cell && data.gpus[cell.row];
  const value = gpu ? gpu.values[cell.column] : undefined;
  const width = (data.to - data.from) / Math.max(1, columns);
  const at = (column: number) => timeText(data.from + column * width, data.to - data.from);
  return (
    <>
      <div class="heat-body">
        <div class="heat-names num" aria-hidden="true">
          {data.gpus.map((one, row) => (
            <span key={one.uuid} style={{ height: `${rowHeight}px` }}>
              {rowHeight > 12 || row % 8 === 0 ? one.index : ''}
            </span>
          ))}
        </div>
        <canvas
          ref={canvas}
          role="img"
          tabIndex={0}
          aria-label={`Heat map, ${MEASURES.find((one) => one.value === data.measure)!.label}; arrow keys move`}
          style={{ height: `${rows * rowHeight}px` }}
          onPointerMove={onPointerMove}
          onPointerDown={onPointerMove}
          onPointerLeave={() => setCell(null)}
          onBlur={() => setCell(null)}
          onKeyDown={onKeyDown}
        />
        {cell && (
          <i
            class="heat-cursor"
            aria-hidden="true"
            style={{
              top: `${cell.row * rowHeight}px`,
              height: `${rowHeight}px`,
              left: `calc(var(--gutter) + (100% - var(--gutter)) * ${cell.column / columns})`,
              width: `calc((100% - var(--gutter)) / ${columns})`,
            }}
          />
        )}
      </div>
      <TimeAxis range={data} now={data.now} />
      <p class="heat-cell num" role="status">
        {gpu
          ? `GPU ${gpu.index} · ${at(cell.column)} – ${at(cell.column + 1)} · ${
              value === null || value === undefined ? 'nothing measured' : inUnit(data.unit, value)
            }${gpu.simulated ? ' (simulated)' : ''}`
          : `Means of ${columns} parts of the time${
              data.gpus.some((one) => one.simulated) ? '; simulated GPUs, simulated values' : ''
            }`}
      </p>
      <ul class="visually-hidden">
        {data.gpus.map((one) => (
          <li key={one.uuid}>
            GPU {one.index}: {one.words}
            {one.simulated && ' (simulated)'}
          </li>
        ))}
      </ul>
    </>
  );
}

function rgb(text: string): number[] {
  const hex = /^#(..)(..)(..)$/.exec(text);
  return hex ? hex.slice(1).map((part) => parseInt(part, 16)) : [128, 128, 128];
}

/** The color at x, 0 to 1, on a scale of several colors. */
function between(stops: number[][], x: number): string {
  const at = Math.max(0, Math.min(1, x)) * (stops.length - 1);
  const first = Math.min(stops.length - 2, Math.floor(at));
  const [a, b] = [stops[first]!, stops[first + 1]!];
  return `rgb(${a.map((one, i) => Math.round(one + (b[i]! - one) * (at - first))).join(' ')})`;
}
