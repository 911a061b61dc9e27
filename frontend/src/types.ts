// The types of the HTTP API. They come from the server's OpenAPI document (see types.mjs); this file
// names them and narrows what the document leaves open. Field names are those of `stoker ... --json`.
import type { paths } from '../generated/api-schema';

/** Without the index signature of models that allow further fields. */
type Known<T> = { [K in keyof T as string extends K ? never : K]: T[K] };
type Json<R> = R extends { content: { 'application/json': infer T } } ? Known<T> : never;

/** The body of a successful GET request. */
export type Got<P extends keyof paths> = paths[P] extends { get: { responses: { 200: infer R } } }
  ? Json<R>
  : never;

/** The body of a successful POST request that creates something. */
export type Created<P extends keyof paths> = paths[P] extends {
  post: { responses: { 201: infer R } };
}
  ? Json<R>
  : never;

export type State =
  | 'held'
  | 'queued'
  | 'submitted'
  | 'starting'
  | 'running'
  | 'stopping'
  | 'done'
  | 'failed'
  | 'cancelled'
  | 'lost';

type OverviewResponse = Got<'/api/overview'>;
type WithState<T> = Omit<T, 'state'> & { state: State };
type WaitingFields = Pick<OverviewResponse['queue'][number], 'why_short' | 'starts_in' | 'ready'>;
export type Run = OverviewResponse['running'][number]['run'];

export interface Job extends WithState<Got<'/api/jobs'>['jobs'][number]>, Partial<WaitingFields> {
  why?: string | string[] | null;
  /** `starts_in` in seconds of the server's clock; computed in the browser for the countdown. */
  starts_at?: number | null;
  run?: Run | null;
  /** The same for `run.ends_in`. */
  ends_at?: number | null;
}

export type JobDetail = WithState<Got<'/api/jobs/{id}'>['job']>;
export type WhatIf = JobDetail['what_if'][number];
export type Diff = Got<'/api/jobs/{id}/diff'>;
export type Attempt = JobDetail['history'][number];

export type Gpu = Known<OverviewResponse['gpus'][number]>;
export type Backend = OverviewResponse['backends'][number];
export type BackendNode = Backend['nodes'][number];
export type SweepSummary = OverviewResponse['sweeps'][number];
export type SweepDetail = SweepSummary &
  Pick<
    Got<'/api/sweeps/{name}'>,
    | 'missing'
    | 'other_code'
    | 'params'
    | 'requested'
    | 'actions'
    | 'note'
    | 'note_revision'
    | 'previous_note'
  >;
export type Counts = OverviewResponse['counts'];

export interface Overview extends Omit<OverviewResponse, 'gpus' | 'running' | 'queue' | 'recent'> {
  gpus: Gpu[];
  running: Job[];
  queue: Job[];
  recent: Job[];
}

/** An event of /api/events, which OpenAPI cannot describe: the parts of the overview that changed. */
export interface Delta
  extends
    Pick<Overview, 'event_id' | 'now'>,
    Partial<
      Pick<
        Overview,
        'counts' | 'gpus' | 'gpu_error' | 'backends' | 'resources' | 'sweeps' | 'daemon'
      >
    > {
  jobs?: Job[];
  /** No longer part of the overview; the job may still exist. */
  removed?: number[];
  /** The ids of the queue in order, if the order changed. */
  queue?: number[];
  waits?: Record<
    string,
    Pick<OverviewResponse['queue'][number], 'why' | 'why_short' | 'starts_in' | 'ready'>
  >;
  runs?: Record<string, Run>;
  removed_sweeps?: string[];
}

export type LogPart = Got<'/api/jobs/{id}/log'>;
export type Match = Got<'/api/jobs/{id}/find'>;
export type Files = Got<'/api/jobs/{id}/files'>;
export type FilePreview = Got<'/api/jobs/{id}/files/preview'>;
export type GpuHistory = Got<'/api/gpus/history'>;
export type Timeline = Got<'/api/timeline'>;
export type TimelineGpu = Known<Timeline['gpus'][number]>;
export type TimelineBlock = TimelineGpu['blocks'][number];
export type HistoryPage = Omit<Got<'/api/history'>, 'jobs'> & { jobs: TableJob[] };
export type TableJob = Job & { values: Record<string, unknown> };
export type FailureGroup = Got<'/api/history/failures'>['groups'][number];
export type TableColumns = Got<'/api/history/columns'>;
export type TableColumn = TableColumns['columns'][number];
export type Completion = Got<'/api/history/complete'>;
export type Results = Got<'/api/sweeps/{name}/results'>;
export type Importance = Got<'/api/sweeps/{name}/importance'>;

/** x and y; y is null where nothing was measured. */
export type Point = [number, number | null];
type WithPoints<T> = Omit<T, 'points'> & { points: Point[] };
export type Curve = WithPoints<Got<'/api/jobs/{id}/curve'>>;
export type Traces = Record<string, WithPoints<Got<'/api/jobs/{id}/trace'>['series'][string]>>;

type CompareResponse = Got<'/api/compare'>;
export type Compared = Omit<CompareResponse, 'runs'> & {
  runs: WithState<CompareResponse['runs'][number]>[];
};
export type ComparedRow = CompareResponse['params'][number] & { best?: number | null };

export const WAITING: readonly State[] = ['held', 'queued'];
const STARTED: readonly State[] = ['starting', 'running', 'stopping'];
export const ACTIVE: readonly State[] = ['submitted', ...STARTED];
export const FINAL: readonly State[] = ['done', 'failed', 'cancelled', 'lost'];
export const STATES: readonly State[] = [...STARTED, 'submitted', 'queued', 'held', ...FINAL];

export const isWaiting = (job: Job) => WAITING.includes(job.state);
export const isActive = (job: Job) => ACTIVE.includes(job.state);
/** Not those that a backend has and did not start yet. */
export const isStarted = (job: Job) => STARTED.includes(job.state);
export const isInQueue = (job: Job) => isWaiting(job) || job.state === 'submitted';
export const isLocal = (job: Job) => job.on === 'local';
export const isFinal = (job: Job) => FINAL.includes(job.state);
