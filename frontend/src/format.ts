// Numbers and times, formatted as the `stoker` command prints them.
import type { Job, SweepSummary } from './types';
import { visible } from './words';

const twoDigits = (n: number) => String(n).padStart(2, '0');

export function duration(seconds: number): string {
  if (seconds < 10) return `${Math.max(0, seconds).toFixed(1)}s`;
  const s = Math.floor(seconds);
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${twoDigits(s % 60)}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h${twoDigits(Math.floor((s % 3600) / 60))}m`;
  return `${Math.floor(s / 86400)}d${twoDigits(Math.floor((s % 86400) / 3600))}h`;
}

/** A duration in whole seconds, for running clocks. */
export const elapsed = (seconds: number) =>
  seconds < 60 ? `${Math.max(0, Math.floor(seconds))}s` : duration(seconds);

export function bytes(count: number): string {
  for (const unit of ['B', 'kB', 'MB', 'GB']) {
    if (count < 1024)
      return `${unit === 'B' || count >= 10 ? count.toFixed(0) : count.toFixed(1)} ${unit}`;
    count /= 1024;
  }
  return `${count.toFixed(1)} TB`;
}

/** Six significant digits, as `stoker results` shows them. */
export function value(x: unknown): string {
  if (x === null || x === undefined) return '–';
  if (typeof x === 'number')
    return Number.isInteger(x) ? String(x) : String(Number(x.toPrecision(6)));
  return visible(typeof x === 'string' ? x : JSON.stringify(x));
}

export const count = (n: number) => n.toLocaleString('en-US');
export const plural = (n: number, word: string) => `${count(n)} ${word}${n === 1 ? '' : 's'}`;
export const seconds = (iso: string | null) => (iso === null ? null : Date.parse(iso) / 1000);

/** Local time; with the date unless it is today. */
export function clock(iso: string | null): string {
  if (iso === null) return '–';
  const at = new Date(iso);
  const time = `${twoDigits(at.getHours())}:${twoDigits(at.getMinutes())}:${twoDigits(at.getSeconds())}`;
  const isToday = at.toDateString() === new Date().toDateString();
  return isToday
    ? time
    : `${at.getFullYear()}-${twoDigits(at.getMonth() + 1)}-${twoDigits(at.getDate())} ${time}`;
}

export function ago(iso: string | null, now: number): string {
  const at = seconds(iso);
  if (at === null) return '–';
  const s = Math.max(0, now - at);
  if (s < 60) return 'just now';
  if (s < 3600) return `${Math.floor(s / 60)}m ago`;
  if (s < 86400) return `${Math.floor(s / 3600)}h ago`;
  return `${Math.floor(s / 86400)}d ago`;
}

/** How long a job has run or ran; null before its start. */
export function runtime(job: Pick<Job, 'started_at' | 'ended_at'>, now: number): number | null {
  const start = seconds(job.started_at);
  return start === null ? null : Math.max(0, (seconds(job.ended_at) ?? now) - start);
}

export const title = (job: Pick<Job, 'name' | 'command'>) => visible(job.name || job.command);

export function metricOf(sweep: {
  metric: SweepSummary['metric'] | string;
}): { name: string; goal: string } | null {
  const metric = sweep.metric;
  if (!metric) return null;
  if (typeof metric !== 'string') return metric;
  const [, name, goal] = /^(.*?)(?::(min|max)\w*)?$/.exec(metric) ?? [];
  return { name: name || metric, goal: goal ?? 'min' };
}

/** The GPUs that a job requests: `2 × 20 GB`. */
export function needs(job: Job): string {
  if (!job.gpus) return 'CPU';
  const memory = job.gpu_mem_auto ? 'auto' : job.gpu_mem_bytes ? bytes(job.gpu_mem_bytes) : '';
  return memory ? `${job.gpus} × ${memory}` : `${job.gpus} GPU${job.gpus === 1 ? '' : 's'}`;
}
