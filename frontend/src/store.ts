// The state of the web UI as signals: fetched once, then updated by the event stream.
import { batch, computed, signal } from '@preact/signals';
import { ApiError, get } from './api';
import * as stream from './stream';
import {
  type Backend,
  type Counts,
  type Delta,
  type Gpu,
  type Job,
  type Overview,
  type SweepSummary,
  isFinal,
  isInQueue,
  isStarted,
} from './types';

const RECENT_SHOWN = 20; // as many as the server sends in an overview

export const isLoaded = signal(false);
export const loadError = signal<ApiError | null>(null);
export const running = signal<Job[]>([]);
export const queue = signal<Job[]>([]);
export const recent = signal<Job[]>([]);
export const gpus = signal<Gpu[]>([]);
export const backends = signal<Backend[]>([]);
/** What jobs reserve of the cores, memory and counters of the host, in words. */
export const reserved = signal('');
/** Where jobs run that name no backend. */
export const defaultBackend = signal('local');
export const counts = signal<Counts>({});
export const sweeps = signal<SweepSummary[]>([]);
export const daemon = signal<Overview['daemon']>({ pid: null, draining: false });
export const host = signal({ user: '', host: '' });
export const isReadOnly = signal(false);
/** The error of the GPU driver, if any. */
export const driverError = signal<string | null>(null);
/** Time of the data shown, in seconds of the server's clock. */
export const asOf = signal(0);

let eventId = 0;
let skew = 0; // server clock minus browser clock, in seconds

/** The server's clock in seconds; updated once a second while the tab is visible. It stops while the
 * server does not answer, since running jobs may have ended in the meantime. */
export const now = signal(Date.now() / 1000);
setInterval(() => {
  if (document.hidden) return;
  now.value =
    (stream.health.value === 'stale' ? stream.lastContactAt.value : Date.now()) / 1000 + skew;
}, 1000);

export const nWaiting = computed(() => (counts.value.queued ?? 0) + (counts.value.held ?? 0));
export const nSubmitted = computed(() => counts.value.submitted ?? 0);
export const nStarted = computed(
  () => (counts.value.running ?? 0) + (counts.value.starting ?? 0) + (counts.value.stopping ?? 0),
);
export const knownJobs = computed(
  () => new Map([...recent.value, ...queue.value, ...running.value].map((job) => [job.id, job])),
);

type Listener = (delta: Delta | null) => void;
const listeners = new Set<Listener>();

/** Call `listener` on every change; null means that everything may have changed. Returns the unsubscribe function. */
export function onChange(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

let loading: Promise<void> | null = null;

export function load(): Promise<void> {
  loading ??= fetchAll().finally(() => (loading = null));
  return loading;
}

async function fetchAll(): Promise<void> {
  try {
    const all = await get<Overview>('/api/overview');
    batch(() => {
      stream.recordContact();
      setTime(all.now);
      // A newer delta may have arrived before this response; never go back to an older event id.
      eventId = Math.max(eventId, all.event_id);
      running.value = all.running.map(withStartTime);
      queue.value = all.queue.map(withStartTime);
      recent.value = all.recent;
      gpus.value = all.gpus;
      backends.value = all.backends;
      reserved.value = all.resources.words;
      defaultBackend.value = all.default_backend;
      counts.value = all.counts;
      sweeps.value = all.sweeps;
      daemon.value = all.daemon;
      isReadOnly.value = all.read_only;
      driverError.value = all.gpu_error ?? null;
      host.value = { user: all.user, host: all.host };
      isLoaded.value = true;
      loadError.value = null;
    });
  } catch (error) {
    if (error instanceof ApiError) loadError.value = error;
    throw error;
  }
}

/** The server restarted, and its event ids with it: accept lower ids again. */
async function reset(): Promise<void> {
  eventId = 0;
  await load();
  listeners.forEach((listener) => listener(null));
}

function setTime(iso: string): void {
  const at = Date.parse(iso) / 1000;
  if (Number.isNaN(at)) return;
  skew = at - Date.now() / 1000;
  now.value = at;
  asOf.value = at;
}

export function apply(delta: Delta): void {
  if (delta.event_id <= eventId) return;
  eventId = delta.event_id;
  batch(() => {
    setTime(delta.now);
    if (delta.counts) counts.value = delta.counts;
    if (delta.daemon) daemon.value = delta.daemon;
    if (delta.gpu_error !== undefined) driverError.value = delta.gpu_error;
    if (delta.gpus?.length) gpus.value = merged(gpus.value, delta.gpus, (gpu) => gpu.uuid);
    if (delta.resources) reserved.value = delta.resources.words;
    if (delta.backends) backends.value = delta.backends;
    if (delta.sweeps?.length)
      sweeps.value = merged(sweeps.value, delta.sweeps, (sweep) => sweep.name);
    if (delta.removed_sweeps?.length)
      sweeps.value = sweeps.value.filter((sweep) => !delta.removed_sweeps?.includes(sweep.name));
    applyJobs((delta.jobs ?? []).map(withStartTime), delta.removed ?? []);
    applyQueue(delta);
  });
  listeners.forEach((listener) => listener(delta));
}

function merged<T>(old: T[], changed: T[], key: (one: T) => string): T[] {
  const fresh = new Map(changed.map((one) => [key(one), one]));
  const kept = old.map((one) => {
    const newer = fresh.get(key(one));
    fresh.delete(key(one));
    return newer ?? one;
  });
  return [...kept, ...fresh.values()];
}

/** Convert `starts_in` and `run.ends_in`, which count from the time of the response, to points in time. */
const withStartTime = (job: Job): Job => ({
  ...job,
  starts_at: job.starts_in == null ? null : asOf.value + job.starts_in,
  ends_at: job.run?.ends_in == null ? null : asOf.value + job.run.ends_in,
});

function applyJobs(changed: Job[], removed: number[]): void {
  if (!changed.length && !removed.length) return;
  const fresh = new Map(changed.map((job) => [job.id, job]));
  const gone = new Set(removed);
  const next = (old: Job[], belongs: (job: Job) => boolean) => {
    const kept = old
      .filter((job) => !gone.has(job.id))
      .map((job) => fresh.get(job.id) ?? job)
      .filter(belongs);
    const seen = new Set(kept.map((job) => job.id));
    return kept.concat(changed.filter((job) => belongs(job) && !seen.has(job.id)));
  };
  running.value = next(running.value, isStarted);
  queue.value = next(queue.value, isInQueue);
  recent.value = next(recent.value, isFinal)
    .sort((a, b) => (b.ended_at ?? '').localeCompare(a.ended_at ?? '') || b.id - a.id)
    .slice(0, RECENT_SHOWN);
}

/** Apply the server's queue order, wait reasons and what running jobs report. */
function applyQueue(delta: Delta): void {
  const { waits } = delta;
  if (waits && Object.keys(waits).length) {
    queue.value = queue.value.map((job) =>
      waits[job.id] ? withStartTime({ ...job, ...waits[job.id] }) : job,
    );
  }
  const { runs } = delta;
  if (runs && Object.keys(runs).length) {
    running.value = running.value.map((job) =>
      runs[job.id] ? withStartTime({ ...job, run: runs[job.id]! }) : job,
    );
  }
  if (!delta.queue) return;
  const place = new Map(delta.queue.map((id, at) => [id, at]));
  queue.value = queue.value
    .filter((job) => place.has(job.id))
    .sort((a, b) => place.get(a.id)! - place.get(b.id)!);
}

export async function start(): Promise<void> {
  await load();
  stream.start({
    change: (data) => apply(JSON.parse(data) as Delta),
    reset,
    lastId: () => eventId,
  });
}
