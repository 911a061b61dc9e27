// Numbers and times, formatted as the `stoker` command prints them. These rules exist here, too, since
// clocks tick and chart axes are drawn in the browser; tests/web_ui/test_formats.py compares them with
// those in Python.
import type { Job } from './types';
import { visible } from './words';

const twoDigits = (n: number) => String(n).padStart(2, '0');

/** As toFixed, but half-way values are rounded to the even digit: 0.25 to 0.2, 12.5 to 12. */
function fixed(x: number, digits: number): string {
  const scaled = x * 10 ** digits;
  const isHalfWay = scaled % 1 === 0.5 && (x * 4) % 1 === 0;
  return (isHalfWay ? (2 * Math.round(scaled / 2)) / 10 ** digits : x).toFixed(digits);
}

export function duration(seconds: number): string {
  if (seconds < 10) return `${fixed(Math.max(0, seconds), 1)}s`;
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
  for (const unit of ['B', 'KiB', 'MiB', 'GiB']) {
    if (count < 1024) return `${fixed(count, unit === 'B' || count >= 10 ? 0 : 1)} ${unit}`;
    count /= 1024;
  }
  return `${fixed(count, 1)} TiB`;
}

/** Six significant digits, as `stoker results` shows them. */
export function value(x: unknown): string {
  if (x === null || x === undefined) return '–';
  if (typeof x === 'number') {
    const [digits, power] = x.toExponential(5).split('e') as [string, string];
    if (Number.isInteger(x) || (Number(power) >= -4 && Number(power) < 6))
      return String(Number.isInteger(x) ? x : Number(x.toPrecision(6)));
    return `${Number(digits)}e${power.replace(/^(.)(\d)$/, '$10$2')}`;
  }
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

/** The GPUs that a job requests: `2 × 20 GiB`. */
export function needs(job: Job): string {
  if (!job.gpus) return 'CPU';
  const memory = job.gpu_mem_auto ? 'auto' : job.gpu_mem_bytes ? bytes(job.gpu_mem_bytes) : '';
  return memory ? `${job.gpus} × ${memory}` : `${job.gpus} GPU${job.gpus === 1 ? '' : 's'}`;
}
