// Numbers and times, formatted as the `stoker` command prints them.
import type { Attempt, Job, SweepSummary } from './types';
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

const CAUSES: Record<string, string> = {
  time_limit: 'time limit',
  user: 'by user',
  dependency: 'dependency failed',
  gpu_oom: 'out of GPU memory',
  host_oom: 'out of memory',
  disk_full: 'disk full',
  missing_program: 'program not found',
  missing_script: 'script not found',
  missing_module: 'module not found',
  gpu_error: 'GPU error',
  gpu_lost: 'its GPU was lost',
  stopped_early: 'stopped early',
  sweep: 'sweep stopped',
};
const SIGNALS: Record<number, string> = {
  1: 'SIGHUP',
  2: 'SIGINT',
  3: 'SIGQUIT',
  4: 'SIGILL',
  6: 'SIGABRT',
  7: 'SIGBUS',
  8: 'SIGFPE',
  9: 'SIGKILL',
  10: 'SIGUSR1',
  11: 'SIGSEGV',
  12: 'SIGUSR2',
  13: 'SIGPIPE',
  15: 'SIGTERM',
};

export function causeText(cause: string | null, detail: string | null): string {
  if (cause === 'start_failed') return detail || 'could not start';
  return (cause && CAUSES[cause]) || '';
}

/** Why a job failed, was cancelled or was lost; empty for every other state. */
export function resultText(job: Job): string {
  if (!['failed', 'cancelled', 'lost'].includes(job.state)) return '';
  const text = causeText(job.cause, job.detail);
  if (text) return text;
  if (job.signal) return killedBy(job.signal);
  return job.exit_code === null ? 'no exit record' : `exit ${job.exit_code}`;
}

const killedBy = (signal: number) => `killed by ${SIGNALS[signal] ?? `signal ${signal}`}`;

// Causes that add nothing to the exit code or signal.
const PLAIN = ['', 'exit', 'signal'];

/** How an attempt ended: its cause, and the exit code or signal from the raw wait status. */
export function attemptText(one: Attempt): string {
  if (one.ended_at === null) return 'running';
  const text =
    causeText(one.cause, one.detail) ||
    (PLAIN.includes(one.cause ?? '') ? '' : one.cause!.replaceAll('_', ' '));
  const status = one.status;
  const code =
    status === null
      ? 'no exit record'
      : status & 0x7f
        ? killedBy(status & 0x7f)
        : `exit ${(status >> 8) & 0xff}`;
  return text && status !== null ? `${text}, ${code}` : text || code;
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
