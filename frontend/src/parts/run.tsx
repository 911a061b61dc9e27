// A running job: progress, newest metric, likely end, GPU memory against its request, warnings.
import { elapsed } from '../format';
import { knownJobs, now } from '../store';
import type { Job, JobDetail } from '../types';
import { visible } from '../words';
import { Section } from './bits';

/** The part of the work that is done; lighter if it is estimated from earlier runs. */
function Bar({ job }: { job: Job }) {
  const run = job.run;
  if (!run || run.percent === null) return null;
  const percent = Math.round(run.percent);
  return (
    <span
      class={run.is_reported ? 'run-bar' : 'run-bar estimated'}
      role="progressbar"
      aria-label={run.is_reported ? 'progress' : 'estimated progress'}
      aria-valuenow={percent}
      aria-valuemin={0}
      aria-valuemax={100}
      title={run.is_reported ? `${percent}%` : `about ${percent}%, from earlier runs`}
    >
      <i style={{ width: `${percent}%` }} />
    </span>
  );
}

/** `~12m left`, or `at most 2h left` if only its time limit is known. */
function TimeLeft({ job }: { job: Job }) {
  if (!job.run || job.ends_at == null) return null;
  const left = job.ends_at - now.value;
  const text = left < 1 ? 'ends soon' : `${elapsed(left)} left`;
  return (
    <span class="num" title="estimated time to the end">
      {left < 1 ? text : job.run.ends_by_limit ? `at most ${text}` : `~${text}`}
    </span>
  );
}

function Warnings({ job }: { job: Job }) {
  const warnings = job.run?.warnings ?? [];
  if (!warnings.length) return null;
  const text = warnings.map(visible).join('; ');
  return (
    <span class="run-warning" role="img" aria-label={`warning: ${text}`} title={text}>
      ⚠
    </span>
  );
}

/** One line for a table. */
export function RunCell({ job }: { job: Job }) {
  const run = job.run;
  if (!run) return null;
  return (
    <span class="run-cell">
      <Warnings job={job} />
      <Bar job={job} />
      {run.work && (
        <span class="cut" title={visible(run.work)}>
          {visible(run.work)}
        </span>
      )}
      {run.metric && (
        <span class="cut mono" title={visible(run.metric)}>
          {visible(run.metric)}
        </span>
      )}
      <TimeLeft job={job} />
    </span>
  );
}

export const MemoryCell = ({ job }: { job: Job }) => (
  <span title={job.run?.gpu_memory}>{job.run?.gpu_memory}</span>
);

/** Used GPU memory as a part of the request. */
function MemoryMeter({ job }: { job: Job }) {
  const used = job.run?.gpu_memory_bytes;
  const requested = job.run?.gpu_memory_requested_bytes;
  if (used == null || !requested) return null;
  return (
    <span class="meter" aria-hidden="true">
      <i class="ours" style={{ width: `${Math.min(100, (100 * used) / requested)}%` }} />
    </span>
  );
}

/** The block of a running job on its own screen. */
export function RunSection({ job }: { job: JobDetail }) {
  const known = knownJobs.value.get(job.id);
  const live: Job = known?.run ? known : job;
  const run = live.run;
  if (!run) return null;
  const hasAny =
    run.percent !== null || run.work || run.metric || run.gpu_memory || run.warnings.length;
  if (!hasAny && live.ends_at == null) return null;
  return (
    <Section title="Run">
      <div class="run-block">
        {run.percent !== null && (
          <p class="run-line">
            <Bar job={live} />
            <b class="num">{Math.round(run.percent)}%</b>
            {!run.is_reported && <span class="dim">estimated from earlier runs</span>}
          </p>
        )}
        <dl class="run-facts">
          {run.work && [<dt key="w">Progress</dt>, <dd key="w=">{visible(run.work)}</dd>]}
          {run.metric && [
            <dt key="m">Newest metric</dt>,
            <dd key="m=" class="mono">
              {visible(run.metric)}
            </dd>,
          ]}
          {live.ends_at != null && [
            <dt key="e">Ends in</dt>,
            <dd key="e=">
              <TimeLeft job={live} />
            </dd>,
          ]}
          {run.gpu_memory && [
            <dt key="g">GPU memory</dt>,
            <dd key="g=">
              <span class="num">{run.gpu_memory}</span>
              {run.gpu_memory_requested_bytes !== null && <span class="dim"> requested</span>}
              <MemoryMeter job={live} />
            </dd>,
          ]}
        </dl>
        {run.warnings.map((warning) => (
          <p key={warning} class="note" role="note">
            ⚠ {visible(warning)}
          </p>
        ))}
      </div>
    </Section>
  );
}
