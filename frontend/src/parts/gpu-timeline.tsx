// The timeline of the GPUs with its tools: range, panning, zooming, legend and details.
import { useEffect, useRef, useState } from 'preact/hooks';
import { query } from '../api';
import { count } from '../format';
import { route } from '../route';
import { now } from '../store';
import { isInBanner } from '../stream';
import type { Timeline } from '../types';
import { useChanges, useFetch } from '../use-fetch';
import { visible } from '../words';
import { Loading } from './bits';
import {
  fixedRange,
  hoursOf,
  limited,
  liveRange,
  panned,
  showRange,
  zoomed,
  type Range,
} from './time-range';
import { BlockDetails, type Chosen, LEGEND, TimelineChart } from './timeline';

const REFRESH_MS = 15_000;

export function GpuTimeline() {
  const fixed = fixedRange(route.value.query);
  const hours = hoursOf(route.value.query);
  const [clock, setClock] = useState(() => Math.round(now.peek()));
  const [chosen, setChosen] = useState<Chosen | null>(null);
  useEffect(() => {
    const timer = setInterval(
      () => !document.hidden && setClock(Math.round(now.peek())),
      REFRESH_MS,
    );
    return () => clearInterval(timer);
  }, []);
  // A job started or ended: show it at once.
  useChanges(
    (delta) => delta.gpus !== undefined && !!delta.jobs?.length,
    () => setClock(Math.round(now.peek())),
    3000,
  );
  const range = fixed ?? liveRange(hours, clock);
  const fetched = useFetch<Timeline>(
    `/api/timeline${query({ from: String(Math.round(range.from)), to: String(Math.round(range.to)) })}`,
    fixed ? REFRESH_MS : 0,
  );
  // The old blocks stay while the next ones are loading.
  const kept = useRef<Timeline | null>(null);
  if (fetched.data) kept.current = fetched.data;
  const data = kept.current;
  if (!data) {
    return fetched.error && !isInBanner(fetched.error) ? (
      <p class="dim">{fetched.error.message}</p>
    ) : (
      <Loading rows={6} />
    );
  }
  if (!data.gpus.length) return null;
  const onRange = (next: Range) => showRange(limited(next, data.now));
  // The same block in newer data, whose end may have moved.
  const current = chosen && refreshed(chosen, data);
  return (
    <section aria-labelledby="timeline-title">
      <header class="section-head">
        <h2 id="timeline-title">Timeline</h2>
        <RangeTools range={range} isLive={!fixed} onRange={onRange} />
      </header>
      <TimelineChart
        data={data}
        range={range}
        chosen={current}
        onRange={onRange}
        onChoose={setChosen}
      />
      <Legend data={data} />
      {current && (
        <BlockDetails
          chosen={current}
          jobs={data.jobs}
          onRange={onRange}
          onClose={() => setChosen(null)}
        />
      )}
    </section>
  );
}

function refreshed(chosen: Chosen, data: Timeline): Chosen {
  const gpu = data.gpus.find((one) => one.uuid === chosen.gpu.uuid);
  const block = gpu?.blocks.find(
    (one) => one.from === chosen.block.from && one.kind === chosen.block.kind,
  );
  return gpu && block ? { gpu, block } : chosen;
}

function RangeTools({
  range,
  isLive,
  onRange,
}: {
  range: Range;
  isLive: boolean;
  onRange(range: Range): void;
}) {
  const tools = [
    { label: 'Earlier', text: '←', next: () => panned(range, -0.5) },
    { label: 'Later', text: '→', next: () => panned(range, 0.5) },
    { label: 'Zoom out', text: '−', next: () => zoomed(range, 2) },
    { label: 'Zoom in', text: '+', next: () => zoomed(range, 0.5) },
  ];
  return (
    <div class="row tl-tools">
      {tools.map(({ label, text, next }) => (
        <button
          key={label}
          type="button"
          aria-label={label}
          title={label}
          onClick={() => onRange(next())}
        >
          {text}
        </button>
      ))}
      <button type="button" disabled={isLive} onClick={() => showRange(null)}>
        Now
      </button>
    </div>
  );
}

function Legend({ data }: { data: Timeline }) {
  return (
    <div class="tl-legend">
      <ul>
        {LEGEND.map(({ kind, label }) => (
          <li key={kind}>
            <i class={`tl-block ${kind.replace(/^(\w+)/, 'tl-$1')}`} aria-hidden="true" />
            {label}
          </li>
        ))}
      </ul>
      {data.forecast.words && <p>{visible(data.forecast.words)}</p>}
      {data.left_off > 0 && <p>{count(data.left_off)} more GPUs are not shown.</p>}
      <p class="wide-only">
        Drag to pan, Ctrl and the wheel to zoom; arrow keys move between blocks, Enter opens one.
      </p>
    </div>
  );
}
