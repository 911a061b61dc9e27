// The timeline of the GPUs: one row per GPU, blocks for what it did, and the forecast right of now.
// Blocks, words and sums come from the server; only positions and clocks are computed here.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { count, duration } from '../format';
import { jobHref } from '../route';
import { isPhone } from '../theme';
import type { Timeline, TimelineBlock, TimelineGpu } from '../types';
import { visible } from '../words';
import { limited, panned, zoomed, type Range } from './time-range';
import { ticks, timeText } from './axis';

export interface Chosen {
  gpu: TimelineGpu;
  block: TimelineBlock;
}

const COMPACT = 16; // more GPUs than this have low rows
const DRAG = 5; // pixels after which a press is a drag
const STEP = 0.25; // of the range, for one step of panning

export const LEGEND = [
  { kind: 'busy', label: 'running' },
  { kind: 'busy tl-s-done', label: 'done' },
  { kind: 'busy tl-s-failed', label: 'failed' },
  { kind: 'busy tl-s-cancelled', label: 'cancelled' },
  { kind: 'waiting', label: 'idle although jobs waited' },
  { kind: 'idle', label: 'idle, no job waited' },
  { kind: 'others', label: 'other users' },
  { kind: 'drained', label: 'drained' },
  { kind: 'off', label: 'Stoker not running' },
  { kind: 'busy forecast', label: 'forecast' },
];

const two = (n: number) => String(n).padStart(2, '0');

/** Local time; with the date if it is not today. */
function clockText(at: number): string {
  const date = new Date(at * 1000);
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  const isToday = date.toDateString() === new Date().toDateString();
  return isToday ? time : `${two(date.getMonth() + 1)}-${two(date.getDate())} ${time}`;
}

/** `02:10:00 – 06:40:00 (4h30m)` */
export const spanText = (block: TimelineBlock) =>
  block.end_known
    ? `${clockText(block.from)} – ${clockText(block.to)} (${duration(block.to - block.from)})`
    : `from ${clockText(block.from)}`;

/** What a block shows, with the name of its job. */
export function blockText(block: TimelineBlock, jobs: Timeline['jobs']): string {
  const title = block.job === null ? undefined : jobs[block.job]?.title;
  if (title === undefined) return visible(block.words);
  const [first = '', ...rest] = block.words.split(/(?=[,;] )/);
  return visible(`${first} ${title}${rest.join('')}`);
}

/** The color of a block: that of its job's state, or of its kind. */
function classesOf(block: TimelineBlock, jobs: Timeline['jobs']): string {
  const state = block.job === null ? undefined : jobs[block.job]?.state;
  const look = block.forecast ? ' forecast' : '';
  return `tl-block tl-${block.kind}${state && !block.forecast ? ` tl-s-${state}` : ''}${look}`;
}

/** The key of a block: the same while it grows, so that it keeps the focus. */
function keyOf(block: TimelineBlock, index: number): string {
  if (block.forecast) return `forecast-${block.job}`;
  return index ? `${block.kind}-${block.from}-${block.lane}` : 'first';
}

export function TimelineChart({
  data,
  range,
  chosen,
  onRange,
  onChoose,
}: {
  data: Timeline;
  range: Range;
  chosen: Chosen | null;
  onRange(range: Range): void;
  onChoose(chosen: Chosen | null): void;
}) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState<Range | null>(null); // while the user drags or turns the wheel
  const [shown, setShown] = useState<(Chosen & { x: number; y: number }) | null>(null);
  const shownRange = view ?? range;
  const { from, to } = shownRange;
  const length = to - from;
  const place = (at: number) => (100 * (at - from)) / length;

  // Fetched for this range: from now on, dragging begins there.
  useEffect(() => setView(null), [range.from, range.to]);

  const find = (target: EventTarget | null): (Chosen & { node: HTMLElement }) | null => {
    const node = target instanceof Element ? target.closest<HTMLElement>('[data-block]') : null;
    const [row, index] = (node?.dataset.block ?? '').split('.').map(Number);
    const gpu = data.gpus[row ?? -1];
    const block = gpu?.blocks[index ?? -1];
    return node && gpu && block ? { node, gpu, block } : null;
  };
  const show = (target: EventTarget | null, pointer?: number) => {
    const found = find(target);
    if (!found) return setShown(null);
    const area = box.current!.getBoundingClientRect();
    const own = found.node.getBoundingClientRect();
    const x = (pointer ?? Math.max(area.left, own.left)) - area.left;
    setShown({ gpu: found.gpu, block: found.block, x, y: own.bottom - area.top + 4 });
  };

  usePanning(box, shownRange, data.now, setView, onRange);

  const isLow = data.gpus.length > COMPACT;
  const rows = useMemo(
    () =>
      data.gpus.map((gpu, row) => (
        <div key={gpu.uuid} class="tl-row" role="group" aria-label={gpuName(gpu)}>
          <span class="tl-name num" title={gpu.uuid}>
            {isLow && row % 4 ? '' : (gpu.index ?? '–')}
          </span>
          <div class="tl-track">
            {gpu.blocks.map((block, index) => {
              const start = Math.max(block.from, from);
              const end = Math.min(block.to, to);
              if (end <= start) return null;
              const key = keyOf(block, index);
              const common = {
                class: classesOf(block, data.jobs),
                tabIndex: -1,
                'data-block': `${row}.${index}`,
                'aria-label': `${gpuName(gpu)}, ${blockText(block, data.jobs)}, ${spanText(block)}`,
                style: {
                  left: `${place(start)}%`,
                  width: `${place(end) - place(start)}%`,
                  top: `${(100 * block.lane) / block.lanes}%`,
                  height: `${100 / block.lanes}%`,
                },
              };
              const isWide = !isLow && block.lanes < 3 && place(end) - place(start) > 3;
              return block.job === null ? (
                <button key={key} type="button" {...common} />
              ) : (
                <a key={key} {...common} href={jobHref(block.job)} draggable={false}>
                  {isWide && (
                    <span>
                      {block.job} {visible(data.jobs[block.job]?.title ?? '')}
                    </span>
                  )}
                </a>
              );
            })}
          </div>
        </div>
      )),
    [data, from, to, isLow],
  );

  // One block can be reached by Tab; the arrow keys move from there.
  useLayoutEffect(() => {
    const node = box.current!;
    if (!node.querySelector('.tl-block[tabindex="0"]'))
      node.querySelector('.tl-block')?.setAttribute('tabindex', '0');
  });
  const focus = (node: HTMLElement | null | undefined) => {
    if (!node) return;
    for (const old of box.current!.querySelectorAll('.tl-block[tabindex="0"]'))
      old.setAttribute('tabindex', '-1');
    node.setAttribute('tabindex', '0');
    node.focus();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const node = (event.target as Element).closest<HTMLElement>('.tl-block');
    const act = node && keyAction(event, node, box.current!, focus);
    const change = {
      '+': () => onRange(limited(zoomed(shownRange, 0.5), data.now)),
      '=': () => onRange(limited(zoomed(shownRange, 0.5), data.now)),
      '-': () => onRange(limited(zoomed(shownRange, 2), data.now)),
      PageUp: () => onRange(limited(panned(shownRange, -STEP), data.now)),
      PageDown: () => onRange(limited(panned(shownRange, STEP), data.now)),
      Escape: () => onChoose(null),
    }[event.key];
    const run = act ?? change;
    if (!run || (event.key === 'Escape' && !chosen)) return;
    event.preventDefault();
    event.stopPropagation();
    run();
  };

  const nowAt = place(data.now);
  return (
    <div
      ref={box}
      class={`timeline${isLow ? ' low' : ''}`}
      role="group"
      aria-label={`Timeline of ${data.gpus.length} GPUs`}
      onPointerOver={(event) => event.pointerType === 'mouse' && show(event.target, event.clientX)}
      onPointerLeave={() => setShown(null)}
      onFocusIn={(event) => show(event.target)}
      onFocusOut={() => setShown(null)}
      onKeyDown={onKeyDown}
      onClick={(event) => {
        const found = find(event.target);
        if (found && found.block.job === null) onChoose({ gpu: found.gpu, block: found.block });
      }}
    >
      <div class="tl-rows">
        {rows}
        <div class="tl-marks" aria-hidden="true">
          {nowAt < 100 && <i class="tl-ahead" style={{ left: `${Math.max(0, nowAt)}%` }} />}
          {nowAt >= 0 && nowAt <= 100 && <i class="tl-now" style={{ left: `${nowAt}%` }} />}
        </div>
      </div>
      <TimeAxis range={shownRange} now={data.now} />
      {shown && (
        <div
          class="tl-tip"
          role="tooltip"
          style={{
            top: `${shown.y}px`,
            left: `${Math.max(0, Math.min(shown.x, (box.current?.clientWidth ?? 0) - 300))}px`,
          }}
        >
          <b>{blockText(shown.block, data.jobs)}</b>
          <span class="num">
            {gpuName(shown.gpu)} · {spanText(shown.block)}
          </span>
        </div>
      )}
    </div>
  );
}

export const gpuName = (gpu: Pick<TimelineGpu, 'index' | 'uuid'>) =>
  gpu.index === null ? `GPU ${gpu.uuid} (removed)` : `GPU ${gpu.index}`;

/** The times below the rows, and now. */
export function TimeAxis({ range, now }: { range: Range; now: number }) {
  const { from, to } = range;
  const marks = ticks(from, to, isPhone.value ? 6 : 12, 'clock');
  const place = (at: number) => (100 * (at - from)) / (to - from);
  const nowAt = place(now);
  return (
    <div class="tl-axis num" aria-hidden="true">
      {marks.map((at) => {
        const x = place(at);
        const isHidden = x < 2 || x > 98 || Math.abs(x - nowAt) < (isPhone.value ? 10 : 4);
        return (
          !isHidden && (
            <span key={at} style={{ left: `${x}%` }}>
              {timeText(at, to - from)}
            </span>
          )
        );
      })}
      {nowAt > 1 && nowAt < 99 && (
        <span class="tl-now-text" style={{ left: `${nowAt}%` }}>
          now
        </span>
      )}
    </div>
  );
}

/** What an arrow key does: move to the next block of the row, or to the row above or below. */
function keyAction(
  event: KeyboardEvent,
  node: HTMLElement,
  box: HTMLElement,
  focus: (node: HTMLElement | null | undefined) => void,
): (() => void) | undefined {
  const row = node.closest('.tl-row')!;
  const blocksOf = (one: Element) => [...one.querySelectorAll<HTMLElement>('.tl-block')];
  const mine = blocksOf(row);
  const at = mine.indexOf(node);
  if (event.shiftKey) return undefined;
  const beside = (step: number) => {
    const all = [...box.querySelectorAll('.tl-row')];
    const next = all[all.indexOf(row) + step];
    if (!next) return;
    const area = node.getBoundingClientRect();
    const middle = area.left + Math.min(area.width, 40) / 2;
    const distance = (one: HTMLElement) => {
      const own = one.getBoundingClientRect();
      return own.left <= middle && middle <= own.right ? 0 : Math.abs(own.left - middle);
    };
    focus(blocksOf(next).sort((a, b) => distance(a) - distance(b))[0]);
  };
  return {
    ArrowLeft: () => focus(mine[at - 1]),
    ArrowRight: () => focus(mine[at + 1]),
    ArrowUp: () => beside(-1),
    ArrowDown: () => beside(1),
    Home: () => focus(mine[0]),
    End: () => focus(mine.at(-1)),
  }[event.key];
}

/** Drag to pan, Ctrl and the wheel to zoom, the horizontal wheel to pan. */
function usePanning(
  box: { current: HTMLDivElement | null },
  range: Range,
  now: number,
  onView: (range: Range) => void,
  onRange: (range: Range) => void,
): void {
  const latest = useRef({ range, now, onView, onRange });
  latest.current = { range, now, onView, onRange };
  useEffect(() => {
    const node = box.current!;
    let start: { x: number; range: Range; isDrag: boolean } | null = null;
    let timer = 0;
    const width = () => node.querySelector('.tl-track')?.clientWidth || 1;
    const onDown = (event: PointerEvent) => {
      if (event.button === 0)
        start = { x: event.clientX, range: latest.current.range, isDrag: false };
    };
    const onMove = (event: PointerEvent) => {
      if (!start) return;
      const moved = event.clientX - start.x;
      if (!start.isDrag && Math.abs(moved) < DRAG) return;
      start.isDrag = true;
      latest.current.onView(limited(panned(start.range, -moved / width()), latest.current.now));
    };
    const onUp = () => {
      if (start?.isDrag) {
        latest.current.onRange(latest.current.range);
        // The click at the end of a drag opens nothing.
        node.addEventListener('click', swallow, { capture: true, once: true });
        setTimeout(() => node.removeEventListener('click', swallow, { capture: true }), 0);
      }
      start = null;
    };
    const onWheel = (event: WheelEvent) => {
      const isZoom = event.ctrlKey || event.metaKey;
      if (!isZoom && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
      event.preventDefault();
      const { range: now_, now: at } = latest.current;
      const track = node.querySelector('.tl-track')!.getBoundingClientRect();
      const around =
        now_.from + ((event.clientX - track.left) / track.width) * (now_.to - now_.from);
      const next = isZoom
        ? zoomed(now_, Math.exp(Math.max(-1, Math.min(1, event.deltaY / 200))), around)
        : panned(now_, event.deltaX / track.width);
      latest.current.onView(limited(next, at));
      clearTimeout(timer);
      timer = window.setTimeout(() => latest.current.onRange(latest.current.range), 250);
    };
    node.addEventListener('pointerdown', onDown);
    addEventListener('pointermove', onMove);
    addEventListener('pointerup', onUp);
    addEventListener('pointercancel', onUp);
    node.addEventListener('wheel', onWheel, { passive: false });
    return () => {
      clearTimeout(timer);
      node.removeEventListener('pointerdown', onDown);
      removeEventListener('pointermove', onMove);
      removeEventListener('pointerup', onUp);
      removeEventListener('pointercancel', onUp);
      node.removeEventListener('wheel', onWheel);
    };
  }, []);
}

function swallow(event: Event): void {
  event.preventDefault();
  event.stopPropagation();
}

/** Details of a block without a single job: when, why, and which jobs. */
export function BlockDetails({
  chosen,
  jobs,
  onRange,
  onClose,
}: {
  chosen: Chosen;
  jobs: Timeline['jobs'];
  onRange(range: Range): void;
  onClose(): void;
}) {
  const { gpu, block } = chosen;
  const more = block.count - block.jobs.length;
  const link = (id: number) => (
    <a key={id} href={jobHref(id)}>
      job {id} {visible(jobs[id]?.title ?? '')}
    </a>
  );
  return (
    <div class="tl-details" role="region" aria-label="Details of the chosen block">
      <header>
        <h3>
          {gpuName(gpu)} <span class="num dim">{spanText(block)}</span>
        </h3>
        <button type="button" class="icon" aria-label="Close the details" onClick={onClose}>
          ✕
        </button>
      </header>
      <p role="status">{visible(block.words)}</p>
      {(block.about !== null || block.jobs.length > 0) && (
        <p class="tl-links">
          {block.about !== null && link(block.about)}
          {block.jobs.map(link)}
          {more > 0 && <span class="dim">and {count(more)} more</span>}
        </p>
      )}
      {block.count > 0 && (
        <button type="button" onClick={() => onRange({ from: block.from, to: block.to })}>
          Zoom in
        </button>
      )}
      {gpu.reasons.length > 0 && (
        <>
          <h4>Why no job ran on {gpuName(gpu)} in the whole range</h4>
          <ul class="plain-list">
            {gpu.reasons.map(({ reason, seconds }) => (
              <li key={reason}>
                <span class="num">{duration(seconds)}</span>{' '}
                <span class="dim">{visible(reason)}</span>
              </li>
            ))}
          </ul>
        </>
      )}
    </div>
  );
}
