// The details of one job.
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import * as actions from '../actions';
import { setStar } from '../annotations';
import { query } from '../api';
import { bytes, clock, duration, elapsed, needs, runtime, title, value } from '../format';
import { useKeys } from '../keys';
import { LogPane } from '../log/pane';
import { Badge, Command, Failed, Loading, Section } from '../parts/bits';
import { CodeOfJob } from '../parts/code-diff';
import { FilesOfJob } from '../parts/files';
import { Heading } from '../parts/heading';
import { SmallChart } from '../parts/line-chart';
import { NoteBox } from '../parts/note';
import { NotifyAboutJob } from '../parts/notification-settings';
import { Star } from '../parts/star';
import { Tags } from '../parts/tags';
import { TraceCharts } from '../parts/traces';
import { go, jobHref, logHref, sweepHref } from '../route';
import { compareHref, selection } from '../selection';
import { RunSection } from '../parts/run';
import { Reasons, WhatIfs, showWhy } from '../parts/why';
import { isReadOnly, knownJobs, now } from '../store';
import {
  type Job,
  type JobDetail,
  type Curve,
  type Traces,
  isActive,
  isFinal,
  isInQueue,
  isLocal,
  isWaiting,
} from '../types';
import { useChanges, useFetch } from '../use-fetch';
import { visible } from '../words';

export function useJob(id: number) {
  const fetched = useFetch<{ job: JobDetail }>(`/api/jobs/${id}`);
  const job = fetched.data?.job ?? null;
  // The stream reports only jobs on the overview; any event may be about one of the others.
  const isNotInStream = () => job !== null && !isFinal(job) && !knownJobs.peek().has(id);
  useChanges(
    (delta) =>
      (delta.jobs ?? []).some((one) => one.id === id) ||
      (delta.removed ?? []).includes(id) ||
      id in (delta.waits ?? {}) ||
      isNotInStream(),
    fetched.reload,
  );
  return { ...fetched, job };
}

export function JobScreen({ id }: { id: number }) {
  const { job, error, reload } = useJob(id);
  const isLive = job !== null && isActive(job);
  const traces = useFetch<{ series: Traces }>(
    job?.attempts ? `/api/jobs/${id}/trace?points=300` : null,
    isLive ? 5000 : 0,
  );
  useJobKeys(job, reload);
  if (!job) return error ? <Failed error={error} retry={reload} /> : <Loading rows={12} />;
  const series = traces.data?.series ?? {};
  const hasTraces = Object.values(series).some((one) => one.points.length > 1);
  const metrics = Object.entries(job.metrics ?? {});
  return (
    <>
      <JobHead job={job} reload={reload} />
      <NoteBox key={id} target={{ job: id }} value={job} onSaved={reload} />
      {isInQueue(job) && <Waiting job={job} />}
      <RunSection job={job} />
      <div class="two">
        <div>
          <Section title="Log" tools={<a href={logHref(id)}>Full view</a>}>
            <LogPane job={job} key={id} />
          </Section>
          {metrics.length > 0 && <Metrics job={job} />}
          <FilesOfJob job={job} key={`files ${id}`} />
          {hasTraces && (
            <Section title="Resources">
              <TraceCharts series={series} />
            </Section>
          )}
        </div>
        <div>
          <Details job={job} />
          <Params params={job.params} />
          <Attempts job={job} />
          <Events job={job} />
        </div>
      </div>
    </>
  );
}

/** Recorded actions of the user and the daemon on this job. */
function Events({ job }: { job: JobDetail }) {
  if (!job.events.length) return null;
  return (
    <Section title="Events">
      <ol class="events">
        {job.events.map((event, i) => (
          <li key={i}>
            <time class="num dim">{clock(event.at)}</time> <b>{event.kind.replaceAll('_', ' ')}</b>{' '}
            <span class="dim">{visible(event.data ?? '')}</span>
          </li>
        ))}
      </ol>
    </Section>
  );
}

function useJobKeys(job: JobDetail | null, reload: () => void): void {
  const ifAllowed = (run: (job: Job) => void) => () => job && !isReadOnly.value && run(job);
  useKeys({
    l: () => job && go(logHref(job.id)),
    c: ifAllowed((one) => void actions.cancel([one])),
    h: ifAllowed((one) => void actions.holdOrRelease(one)),
    r: ifAllowed((one) => void actions.rerun([one])),
    e: ifAllowed((one) => go(actions.cloneHref(one))),
    p: ifAllowed((one) => void actions.askPriority([one])),
    s: ifAllowed((one) => void setStar({ job: one.id }, !one.starred, reload)),
    w: () => job && isInQueue(job) && void showWhy(job.id),
  });
}

export function JobHead({
  job,
  part,
  reload,
}: {
  job: JobDetail;
  part?: string;
  reload: () => void;
}) {
  const time = runtime(job, now.value);
  const { result } = job;
  return (
    <header class="page-head">
      <div class="grow">
        <p class="crumbs dim">
          <a href="#/history">Jobs</a> /{' '}
          {part ? (
            <>
              <a href={jobHref(job.id)} class="num">
                {job.id}
              </a>{' '}
              / <span aria-current="page">{part}</span>
            </>
          ) : (
            <span class="num" aria-current="page">
              {job.id}
            </span>
          )}
          {job.sweep && (
            <>
              {' '}
              · trial {job.trial} of <a href={sweepHref(job.sweep)}>{visible(job.sweep)}</a>
            </>
          )}
        </p>
        <div class="title-row">
          <Heading kind={job.name ? '' : 'mono'}>{title(job)}</Heading>
          <Star target={{ job: job.id }} isStarred={job.starred} onChanged={reload} />
        </div>
        <p class="headline">
          <Badge state={job.state} />
          {result &&
            (job.state === 'cancelled' ? (
              <span>{visible(result)}</span>
            ) : (
              <b class="bad-ink">{visible(result)}</b>
            ))}
          {time !== null && (
            <span class="num">{isActive(job) ? elapsed(time) : duration(time)}</span>
          )}
          {!isLocal(job) && <span class="num">{placeOf(job)}</span>}
          {job.devices.length > 0 && (
            <span class="num">GPU {job.devices.map((one) => one.index).join(', ')}</span>
          )}
          <Tags target={{ job: job.id }} tags={job.tags} onChanged={reload} />
        </p>
      </div>
      <JobActions job={job} />
    </header>
  );
}

function JobActions({ job }: { job: JobDetail }) {
  const compare = (
    <a
      class="button"
      href={compareHref([...new Set([...selection.value, String(job.id)])])}
      title="Compare with the selected runs"
    >
      Compare
    </a>
  );
  if (isReadOnly.value)
    return (
      <div class="row actions">
        <NotifyAboutJob job={job} />
        {compare}
      </div>
    );
  return (
    <div class="row actions">
      <NotifyAboutJob job={job} />
      {compare}
      {job.state === 'queued' && <button onClick={() => void actions.hold([job])}>Hold</button>}
      {job.state === 'held' && <button onClick={() => void actions.release([job])}>Release</button>}
      {isWaiting(job) && <button onClick={() => void actions.moveFirst(job)}>Move to front</button>}
      {isWaiting(job) && <button onClick={() => void actions.askPriority([job])}>Priority…</button>}
      {isFinal(job) && <button onClick={() => void actions.rerun([job])}>Rerun</button>}
      <a class="button" href={actions.cloneHref(job)}>
        Clone and edit
      </a>
      {!isFinal(job) && (
        <button class="danger" onClick={() => void actions.cancel([job])}>
          Cancel…
        </button>
      )}
      {isFinal(job) && <button onClick={() => void actions.remove([job])}>Remove…</button>}
    </div>
  );
}

function Waiting({ job }: { job: JobDetail }) {
  if (job.state !== 'held' && !job.why.length) return null;
  return (
    <div class="note" role="note">
      {job.state === 'held' ? (
        <p>This job is held. Release it to let it start.</p>
      ) : (
        <>
          <Reasons job={job} />
          <WhatIfs job={job} />
        </>
      )}
    </div>
  );
}

function Details({ job }: { job: JobDetail }) {
  const cpu = job.user_seconds === null ? null : job.user_seconds + (job.system_seconds ?? 0);
  const rows: [string, ComponentChildren][] = [
    ['Command', <Command text={job.command} />],
    ['Working directory', <code>{visible(job.cwd)}</code>],
    ['Code', job.code && <CodeOfJob job={job} />],
    ['Snapshot', job.snapshot && <code>{visible(job.snapshot_dir ?? job.snapshot)}</code>],
    ['Runs on', !isLocal(job) && placeOf(job)],
    ['Needs', fullRequest(job)],
    ['Engine options', job.option.length > 0 && <code>{visible(job.option.join(' '))}</code>],
    ['Array', job.array_index !== null && `${job.array}_${job.array_index}`],
    ['Priority', job.priority || null],
    ['Fair-share group', job.group && visible(job.group)],
    [
      'Runs after',
      job.after.length
        ? job.after.map((one) => (
            <span key={one.job}>
              <a href={jobHref(one.job)}>{one.job}</a>:{one.condition}
              {one.met ? ' (met)' : ''}{' '}
            </span>
          ))
        : null,
    ],
    ['Time limit', job.time_limit === null ? null : duration(job.time_limit)],
    ['Retries', job.retries || null],
    ['Modules', job.module.join(', ') || null],
    ['Conda', job.conda],
    ['Virtual environment', job.venv],
    ['uv', job.uv ? 'environment of the project' : null],
    ['Container', job.container],
    ['Mounts', job.mount.join(', ') || null],
    ['Restartable', job.restartable && !job.preemptible ? 'yes' : null],
    ['Preemptible', job.preemptible ? preemptible(job) : null],
    ['Submitted', clock(job.submitted_at)],
    ['Started', job.started_at && clock(job.started_at)],
    ['Ended', job.ended_at && clock(job.ended_at)],
    ['Earliest start', isWaiting(job) && job.eligible_at && clock(job.eligible_at)],
    ['Detail', job.detail && visible(job.detail)],
    ['CPU time', cpu === null ? null : duration(cpu)],
    ['Peak memory', job.max_rss_bytes ? bytes(job.max_rss_bytes) : null],
    [
      'Peak GPU memory',
      job.gpu_memory_peak_bytes === null ? null : bytes(job.gpu_memory_peak_bytes),
    ],
    ['GPU utilization', job.gpu_use_percent === null ? null : `${job.gpu_use_percent.toFixed(0)}%`],
    [
      'Energy',
      job.gpu_energy_joules === null ? null : `${(job.gpu_energy_joules / 3600).toFixed(1)} Wh`,
    ],
    ['Ran with', ranWith(job)],
    ['PID', job.pid],
    ['Rerun of', job.rerun_of && <a href={jobHref(job.rerun_of)}>{job.rerun_of}</a>],
  ];
  return (
    <Section title="Details">
      <dl class="facts">
        {rows
          .filter(([, shown]) => shown)
          .map(([name, shown]) => [<dt key={name}>{name}</dt>, <dd key={`${name}=`}>{shown}</dd>])}
      </dl>
    </Section>
  );
}

/** Host, versions and GPU models of the newest attempt. */
function ranWith(job: JobDetail): string | null {
  const machine = job.history.at(-1)?.machine;
  return machine ? visible(machine.summary) : null;
}

/** Whether a preemptible job gives way, and how often it did. */
function preemptible(job: JobDetail): string {
  if (job.gives_way_to) return `asked to make room for ${job.gives_way_to}`;
  const times = job.preemptions === 1 ? 'once' : `${job.preemptions} times`;
  return job.preemptions ? `yes, gave way ${times}` : 'yes';
}

/** The backend of a job, and where it runs there: `lab, node n2, GPU 0,1`. */
function placeOf(job: JobDetail): string {
  const several = job.nodes > 1;
  return visible(
    [
      job.on,
      several && `${job.nodes} nodes`,
      job.node && `${several ? 'first ' : ''}node ${job.node}`,
      job.node_gpus && `GPU ${job.node_gpus}`,
    ]
      .filter(Boolean)
      .join(', '),
  );
}

function fullRequest(job: JobDetail): string {
  return [
    needs(job) + (job.nodes > 1 ? ` on each of ${job.nodes} nodes` : ''),
    job.gpu_model,
    job.min_gpu_mem_bytes !== null && `at least ${bytes(job.min_gpu_mem_bytes)} per GPU`,
    job.gpu_ids.length > 0 && `only GPU ${job.gpu_ids.join(', ')}`,
    job.prefer.length > 0 && `prefers GPU ${job.prefer.join(', ')}`,
    job.exclusive && 'exclusive',
    job.under_mps ? 'under MPS' : job.share && `share ${job.share}`,
    visible(job.reserves),
  ]
    .filter(Boolean)
    .join(', ');
}

function Params({ params }: { params: Record<string, unknown> | undefined }) {
  const all = Object.entries(params ?? {});
  if (!all.length) return null;
  return (
    <Section title="Parameters">
      <dl class="facts">
        {all.map(([name, x]) => [
          <dt key={name} class="mono">
            {visible(name)}
          </dt>,
          <dd key={`${name}=`}>
            <code>{value(x)}</code>
          </dd>,
        ])}
      </dl>
    </Section>
  );
}

function Attempts({ job }: { job: JobDetail }) {
  if (job.history.length < 2) return null;
  return (
    <Section title="Attempts">
      <ol class="events">
        {job.history.map((one) => (
          <li key={one.number}>
            <b class="num">{one.number}</b> <time class="num dim">{clock(one.started_at)}</time>{' '}
            {one.ended_at === null ? 'running' : visible(one.result)}
            {one.devices.length > 0 && <span class="dim"> on GPU {one.devices.join(', ')}</span>}
            {one.node && (
              <span class="dim">
                {' '}
                on {visible(one.node)}
                {one.node_gpus && `, GPU ${visible(one.node_gpus)}`}
              </span>
            )}
          </li>
        ))}
      </ol>
    </Section>
  );
}

function Metrics({ job }: { job: JobDetail }) {
  const names = Object.keys(job.metrics);
  const [picked, setPicked] = useState<string | null>(null);
  const name = picked ?? names.find((one) => job.metrics[one]!.n > 1) ?? null;
  const curve = useFetch<Curve>(
    name === null ? null : `/api/jobs/${job.id}/curve${query({ metric: name, points: 500 })}`,
    isActive(job) ? 4000 : 0,
  );
  return (
    <Section title="Metrics">
      <table class="plain">
        <thead>
          <tr>
            <th>Metric</th>
            <th class="num">Last</th>
            <th class="num">Min</th>
            <th class="num">Max</th>
            <th class="num p-hide">Step</th>
            <th class="num p-hide">Reports</th>
          </tr>
        </thead>
        <tbody>
          {names.map((one) => {
            const m = job.metrics[one]!;
            return (
              <tr key={one} class={one === name ? 'selected' : ''}>
                <td>
                  <button
                    class="link mono"
                    aria-pressed={one === name}
                    onClick={() => setPicked(one)}
                  >
                    {visible(one)}
                  </button>
                </td>
                <td class="num">{value(m.last)}</td>
                <td class="num">{value(m.min)}</td>
                <td class="num">{value(m.max)}</td>
                <td class="num p-hide">{value(m.step)}</td>
                <td class="num p-hide">{m.n}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {name !== null && curve.data && curve.data.points.length > 1 && (
        <SmallChart label={`${name} over steps`} points={curve.data.points} height={200} />
      )}
    </Section>
  );
}
