// The types of the HTTP responses; field names are those of `stoker ... --json`.

export type State =
  | 'held'
  | 'queued'
  | 'starting'
  | 'running'
  | 'stopping'
  | 'done'
  | 'failed'
  | 'cancelled'
  | 'lost';

export interface Job {
  id: number;
  name: string | null;
  state: State;
  cause: string | null;
  exit_code: number | null;
  signal: number | null;
  detail: string | null;
  command: string;
  argv: string[];
  shell: boolean;
  cwd: string;
  gpus: number;
  gpu_mem_bytes: number | null;
  gpu_mem_auto: boolean;
  gpu_ids: string[];
  prefer: string[];
  gpu_model: string | null;
  min_gpu_mem_bytes: number | null;
  exclusive: boolean;
  on_oom: string | null;
  gpu_memory_peak_bytes: number | null;
  gpu_use_percent: number | null;
  gpu_energy_joules: number | null;
  devices: { index: number; uuid: string }[];
  priority: number;
  tags: string[];
  after: { job: number; condition: string; met: boolean }[];
  attempts: number;
  retries: number;
  restartable: boolean;
  time_limit: number | null;
  submitted_at: string | null;
  eligible_at: string | null;
  started_at: string | null;
  ended_at: string | null;
  stop_requested: unknown;
  pid: number | null;
  user_seconds: number | null;
  system_seconds: number | null;
  max_rss_bytes: number | null;
  stdout: string | null;
  stderr: string | null;
  rerun_of: number | null;
  sweep: string | null;
  trial: number | null;
  why?: string | string[] | null;
  /** Seconds from the `now` of the response. */
  starts_in?: number | null;
  /** The same in seconds of the server's clock; computed in the browser for the countdown. */
  starts_at?: number | null;
  /** It waits for nothing but GPUs, so it can be moved in the queue. */
  in_line?: boolean;
}

export interface Attempt {
  number: number;
  devices: number[];
  started_at: string | null;
  ended_at: string | null;
  status: number | null;
  cause: string | null;
  detail: string | null;
}

export interface MetricSummary {
  last: number | null;
  min: number | null;
  max: number | null;
  n: number;
  step: number | null;
}

export interface JobDetail extends Job {
  history: Attempt[];
  events: { at: string; kind: string; data: string | null }[];
  params: Record<string, unknown>;
  metrics: Record<string, MetricSummary>;
}

export interface Gpu {
  index: number;
  uuid: string;
  model: string | null;
  slots: number;
  state: string;
  memory_bytes: number | null;
  memory_used_bytes: number | null;
  utilisation_percent: number | null;
  power_watts: number | null;
  temperature_celsius: number | null;
  jobs: (number | { id: number; memory_bytes?: number | null })[];
  strangers: { user: string | null; pid: number | null; memory_bytes: number | null }[];
}

export interface SweepSummary {
  name: string;
  state: string;
  trials: Partial<Record<State, number>>;
  total: number;
  method: string;
  metric: string | { name: string; goal: string } | null;
  command: string;
  best: { trial: number; value: number; params: Record<string, unknown> } | null;
  stopped: string | null;
}

export interface SweepDetail extends SweepSummary {
  /** Trials that `resume` would run. */
  missing: number;
  params: { name: string; kind: string; values?: unknown[] }[];
}

export type Counts = Partial<Record<State, number>>;

export interface Overview {
  now: string;
  event_id: number;
  read_only: boolean;
  user: string;
  host: string;
  daemon: { pid: number | null; draining: boolean };
  trouble?: string | null;
  gpus: Gpu[];
  running: Job[];
  queue: Job[];
  recent: Job[];
  counts: Counts;
  sweeps: SweepSummary[];
}

export interface Delta {
  event_id: number;
  now: string;
  counts?: Counts;
  gpus?: Gpu[];
  jobs?: Job[];
  /** No longer part of the overview; the job may still exist. */
  removed?: number[];
  /** The ids of the queue in order, if the order changed. */
  queue?: number[];
  waits?: Record<string, { why: string; starts_in: number | null; in_line: boolean }>;
  removed_sweeps?: string[];
  sweeps?: SweepSummary[];
  daemon?: { pid: number | null; draining: boolean };
}

export interface LogPart {
  attempt: number;
  size: number;
  from: number;
  to: number;
  text: string;
  is_over: boolean;
}

export type Point = [number, number | null];
export type Traces = Record<string, { unit: string; points: Point[] }>;

export const WAITING: readonly State[] = ['held', 'queued'];
export const ACTIVE: readonly State[] = ['starting', 'running', 'stopping'];
export const FINAL: readonly State[] = ['done', 'failed', 'cancelled', 'lost'];
export const STATES: readonly State[] = [...ACTIVE, 'queued', 'held', ...FINAL];

export const isWaiting = (job: Job) => WAITING.includes(job.state);
export const isActive = (job: Job) => ACTIVE.includes(job.state);
export const isFinal = (job: Job) => FINAL.includes(job.state);
