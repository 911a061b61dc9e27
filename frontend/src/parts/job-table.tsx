// A table of jobs, with keyboard shortcuts and bulk actions.
import type { ComponentChildren } from 'preact';
import * as actions from '../actions';
import { ago, clock, count, duration, elapsed, needs, plural, runtime } from '../format';
import { toggleStar } from '../annotations';
import { go, jobHref, logHref } from '../route';
import { clearSelection, deselect, select, selection, useSelecting } from '../selection';
import { isReadOnly, now } from '../store';
import { type Job, isActive, isFinal, isInQueue, isLocal, isWaiting } from '../types';
import { visible } from '../words';
import { Badge, JobTitle } from './bits';
import { MemoryCell, RunCell } from './run';
import { WhyButton, showWhy } from './why';
import type { Column } from './table';
import { WideTable } from './wide-table';

/** Where a job of a backend runs, in the words of `stoker ls`: `lab n2:0,1`. */
const Place = ({ job }: { job: Job }) => (
  <span class="cut place" title={visible(job.place)}>
    {visible(job.place)}
  </span>
);

/** The GPUs of a running job, or the requested number in parentheses. Phones show no column headings. */
function GpuCell({ job }: { job: Job }) {
  if (!isLocal(job)) return <Place job={job} />;
  if (job.devices.length)
    return (
      <>
        <span class="only-phone">GPU </span>
        {job.devices.map((one) => one.index).join(',')}
      </>
    );
  if (!job.gpus) return <>CPU</>;
  return (
    <>
      <span class="no-phone">({job.gpus})</span>
      <span class="only-phone">{plural(job.gpus, 'GPU')}</span>
    </>
  );
}
function Time({ job }: { job: Job }) {
  const time = runtime(job, isActive(job) ? now.value : 0);
  return time === null ? (
    <span class="dim no-phone">–</span>
  ) : (
    <>{isActive(job) ? elapsed(time) : duration(time)}</>
  );
}
function Starts({ job }: { job: Job }) {
  if (job.starts_at == null) return <span class="dim no-phone">–</span>;
  const left = job.starts_at - now.value;
  return left < 1 ? (
    <>soon</>
  ) : (
    <>
      <span class="only-phone">in </span>~{elapsed(left)}
    </>
  );
}
const Ago = ({ at }: { at: string | null }) => <span title={clock(at)}>{ago(at, now.value)}</span>;

export const COLUMNS = {
  id: { name: 'id', head: 'Job', kind: 'num id p-end', width: 64, cell: (job) => job.id },
  state: {
    name: 'state',
    head: 'State',
    kind: 'p-meta',
    width: 104,
    cell: (job) => <Badge state={job.state} />,
  },
  title: {
    name: 'title',
    head: 'Name and command',
    kind: 'wide p-title',
    cell: (job) => <JobTitle job={job} />,
  },
  gpu: {
    name: 'gpu',
    head: 'GPU',
    kind: 'num p-meta',
    width: 64,
    cell: (job) => <GpuCell job={job} />,
  },
  time: {
    name: 'time',
    head: 'Time',
    kind: 'num p-meta',
    width: 76,
    cell: (job) => <Time job={job} />,
  },
  ended: {
    name: 'ended',
    head: 'Ended',
    kind: 'num p-meta',
    width: 84,
    cell: (job) => <Ago at={job.ended_at} />,
  },
  submitted: {
    name: 'submitted',
    head: 'Submitted',
    kind: 'num p-meta p-date',
    width: 92,
    cell: (job) => <Ago at={job.submitted_at} />,
  },
  result: {
    name: 'result',
    head: 'Result',
    kind: 'p-meta p-cut',
    width: 170,
    cell: (job) =>
      isInQueue(job) ? (
        <WhyButton job={job} />
      ) : (
        job.result && (
          <span
            class={job.state === 'cancelled' ? 'cut dim' : 'cut bad-ink'}
            title={visible(job.detail ?? '')}
          >
            {visible(job.result)}
          </span>
        )
      ),
  },
  run: {
    name: 'run',
    head: 'Progress',
    kind: 'p-line',
    width: '36%',
    cell: (job) => <RunCell job={job} />,
  },
  memory: {
    name: 'memory',
    head: 'GPU memory',
    kind: 'num p-hide',
    width: 168,
    cell: (job) => <MemoryCell job={job} />,
  },
  needs: {
    name: 'needs',
    head: 'Needs',
    kind: 'num p-meta',
    width: 92,
    cell: (job) => (isLocal(job) ? needs(job) : <Place job={job} />),
  },
  priority: {
    name: 'priority',
    head: 'Prio',
    kind: 'num p-hide',
    width: 48,
    cell: (job) => job.priority || <span class="dim">0</span>,
  },
  why: {
    name: 'why',
    head: 'Waiting for',
    kind: 'why p-line',
    width: '34%',
    cell: (job) => <WhyButton job={job} />,
  },
  starts: {
    name: 'starts',
    head: 'Starts in',
    kind: 'num p-meta',
    width: 152,
    cell: (job) => (job.state === 'queued' ? <Starts job={job} /> : <Badge state={job.state} />),
  },
} satisfies Record<string, Column<Job>>;

interface Props {
  label: string;
  jobs: Job[];
  columns: Column<Job>[];
  onEnd?(): void;
  onRange?(first: number, last: number): void;
  onDrop?(from: number, to: number): void;
  total?: number;
  phoneHeight?: number;
  sort?: string;
  onSort?(name: string): void;
  /** Load all matching jobs, where the table has only some of them. */
  loadAll?(): Promise<Job[]>;
}

/** Columns in pixels that need more room where jobs run on backends. */
const WIDER: Record<string, number> = { gpu: 176, needs: 128, starts: 152 };

function withPlaces(columns: Column<Job>[], jobs: Job[]): Column<Job>[] {
  if (jobs.every(isLocal)) return columns;
  return columns.map((one) => ({ ...one, width: WIDER[one.name] ?? one.width }));
}

export function JobTable({ jobs, loadAll, ...rest }: Props) {
  const canAct = !isReadOnly.value;
  const runOf = (job: Job) => String(job.id);
  const selecting = useSelecting(jobs, (job) => job.id, runOf);
  const { selected } = selecting;
  const chosen = jobs.filter((job) => selected.has(job.id));

  const isAll = jobs.length > 0 && jobs.every((job) => selected.has(job.id));
  const selectMatching = async () =>
    select([...selection.peek(), ...(await loadAll!()).map(runOf)]);

  const onKey = (job: Job, event: KeyboardEvent): boolean => {
    const targets = chosen.length ? chosen : [job];
    const place = jobs.indexOf(job);
    if (event.key === 'l') go(logHref(job.id));
    else if (event.key === 'Escape' && selection.peek().length) clearSelection();
    else if (event.key === 'w' && isInQueue(job)) void showWhy(job.id);
    else if (!canAct) return false;
    else if (event.key === 'c') void actions.cancel(targets);
    else if (event.key === 'h')
      void (targets.every((one) => one.state === 'held')
        ? actions.release(targets)
        : actions.hold(targets));
    else if (event.key === 'r') void actions.rerun(targets);
    else if (event.key === 'e') go(actions.cloneHref(job));
    else if (event.key === 's') toggleStar(job);
    else if (event.key === 'p') void actions.askPriority(targets);
    else if (event.key === 'K' && rest.onDrop) rest.onDrop(place, place - 1);
    else if (event.key === 'J' && rest.onDrop) rest.onDrop(place, place + 1);
    else if (event.key === 'T' && rest.onDrop) rest.onDrop(place, 0);
    else return false;
    return true;
  };

  const andClear = (work: (jobs: Job[]) => Promise<void>) => () =>
    void work(chosen).then(() => deselect(chosen.map(runOf)));
  return (
    <>
      {chosen.length > 0 && canAct && (
        <BulkActions label={`${plural(chosen.length, 'job')} selected`}>
          {chosen.some((job) => isActive(job) || isWaiting(job)) && (
            <button onClick={andClear(actions.cancel)}>Cancel…</button>
          )}
          {chosen.some((job) => job.state === 'queued') && (
            <button onClick={andClear(actions.hold)}>Hold</button>
          )}
          {chosen.some((job) => job.state === 'held') && (
            <button onClick={andClear(actions.release)}>Release</button>
          )}
          {chosen.some(isWaiting) && (
            <button onClick={andClear(actions.askPriority)}>Priority…</button>
          )}
          {chosen.some(isFinal) && <button onClick={andClear(actions.rerun)}>Rerun</button>}
          {chosen.every((job) => !isActive(job) && !isWaiting(job)) && (
            <button onClick={andClear(actions.remove)}>Remove…</button>
          )}
          {isAll && loadAll && (
            <button class="link" onClick={() => void selectMatching()}>
              Select all matching jobs
            </button>
          )}
          {!isAll && (
            <button class="link" onClick={selecting.onSelectAll}>
              Select all {count(jobs.length)}
            </button>
          )}
          <button class="link" onClick={clearSelection}>
            Clear
          </button>
        </BulkActions>
      )}
      <WideTable
        {...rest}
        columns={withPlaces(rest.columns, jobs)}
        rows={jobs}
        id={(job) => job.id}
        href={(job) => jobHref(job.id)}
        onKey={onKey}
        {...selecting}
        canMove={(job) => Boolean(job.ready)}
        onDrop={canAct ? rest.onDrop : undefined}
        rowKind={(job) => (job.state === 'held' ? 'faint-row' : '')}
      />
    </>
  );
}

function BulkActions({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    <div class="bulk" role="group" aria-label={label}>
      <b>{label}</b>
      {children}
    </div>
  );
}
