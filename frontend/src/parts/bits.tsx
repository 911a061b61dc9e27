// Small components that every screen uses.
import type { ComponentChildren } from 'preact';
import { ApiError } from '../api';
import { count, plural } from '../format';
import { jobHref, sweepHref } from '../route';
import { isInBanner } from '../stream';
import { withFieldLabels, visible } from '../words';
import { NoteMark, Star } from './star';
import { type Counts, type Job, type State, STATES } from '../types';

const SHAPES: Record<State, string> = {
  held: '‖',
  queued: '○',
  submitted: '◎',
  starting: '◔',
  running: '●',
  stopping: '◑',
  done: '✓',
  failed: '✕',
  cancelled: '–',
  lost: '?',
};

/** The state as symbol, color and text, so that it never depends on color alone. */
export function Badge({ state, hasText = true }: { state: State; hasText?: boolean }) {
  return (
    <span class={`state s-${state}`} title={hasText ? undefined : state}>
      <i aria-hidden="true">{SHAPES[state] ?? '·'}</i>
      {hasText ? state : <span class="visually-hidden">{state}</span>}
    </span>
  );
}

/** Name and command of a job, rendered as text, never as markup. */
export function JobTitle({ job }: { job: Job }) {
  return (
    <span class="title">
      <Star target={{ job: job.id }} isStarred={job.starred} isInTable />
      <NoteMark line={job.note_line} />
      <a href={jobHref(job.id)} tabIndex={-1} title={visible(job.command)}>
        {job.name ? <b>{visible(job.name)}</b> : <code>{visible(job.command)}</code>}
        {job.name && <code class="dim">{visible(job.command)}</code>}
      </a>
      {job.progress && !job.run && <span class="tag">{visible(job.progress)}</span>}
      {job.sweep && (
        <a
          class="tag"
          href={sweepHref(job.sweep)}
          tabIndex={-1}
          title={`trial ${job.trial} of sweep ${visible(job.sweep)}`}
        >
          {visible(job.sweep)} #{job.trial}
        </a>
      )}
      {job.tags.map((tag) => (
        <span class="tag" key={tag}>
          {visible(tag)}
        </span>
      ))}
    </span>
  );
}

/** A command that wraps between words only, so that `--lr` stays in one piece. */
export function Command({ text }: { text: string }) {
  return (
    <code class="command">
      {visible(text)
        .split(/(\s+)/)
        .map((word, i) => (i % 2 ? word : <span key={i}>{word}</span>))}
    </code>
  );
}

/** A bar with the share of trials in each state. */
export function Progress({ trials, total }: { trials: Counts; total: number }) {
  const parts = STATES.filter((state) => trials[state]);
  const done = parts.map((state) => `${count(trials[state] ?? 0)} ${state}`).join(', ');
  return (
    <span
      class="progress"
      role="img"
      aria-label={`${plural(total, 'trial')}: ${done || 'none yet'}`}
      title={done}
    >
      {[...parts]
        .sort((a, b) => DONE_FIRST.indexOf(a) - DONE_FIRST.indexOf(b))
        .map((state) => (
          <i
            key={state}
            class={`b-${state}`}
            style={{ width: `${(100 * (trials[state] ?? 0)) / Math.max(1, total)}%` }}
          />
        ))}
    </span>
  );
}
const DONE_FIRST: State[] = [
  'done',
  'failed',
  'lost',
  'cancelled',
  'stopping',
  'running',
  'starting',
  'submitted',
  'queued',
  'held',
];

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p>{title}</p>
      {children && <div class="dim">{children}</div>}
    </div>
  );
}

export function Loading({ rows = 5, what = 'Loading' }: { rows?: number; what?: string }) {
  return (
    <div class="loading" role="status" aria-label={what}>
      {Array.from({ length: rows }, (_, i) => (
        <i key={i} style={{ width: `${88 - ((i * 37) % 50)}%` }} />
      ))}
    </div>
  );
}

export function Failed({ error, retry }: { error: unknown; retry?: () => void }) {
  if (isInBanner(error)) return <Loading />;
  return (
    <div class="failed" role="alert">
      <p>{withFieldLabels(error instanceof Error ? error.message : String(error))}</p>
      {error instanceof ApiError && error.hint && <p class="dim">{withFieldLabels(error.hint)}</p>}
      {retry && <button onClick={retry}>Try again</button>}
    </div>
  );
}

export function Section({
  title,
  note,
  tools,
  children,
}: {
  title: string;
  note?: ComponentChildren;
  tools?: ComponentChildren;
  children: ComponentChildren;
}) {
  return (
    <section aria-label={title}>
      <header>
        <h2>{title}</h2>
        {note !== undefined && <span class="dim num">{note}</span>}
        <span class="grow" />
        {tools}
      </header>
      {children}
    </section>
  );
}

export interface Choice<T extends string> {
  value: T;
  label: string;
}

export function Tabs<T extends string>({
  label,
  value,
  options,
  onPick,
}: {
  label: string;
  value: T;
  options: Choice<T>[];
  onPick(value: T): void;
}) {
  return (
    <div class="tabs" role="group" aria-label={label}>
      {options.map((one) => (
        <button
          key={one.value}
          type="button"
          aria-pressed={one.value === value}
          onClick={() => onPick(one.value)}
        >
          {one.label}
        </button>
      ))}
    </div>
  );
}
