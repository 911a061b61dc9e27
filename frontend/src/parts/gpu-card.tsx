// One GPU: memory, utilization, power, temperature, and the jobs and other processes on it.
import type { ComponentChildren } from 'preact';
import { bytes, elapsed, runtime, title } from '../format';
import { jobHref } from '../route';
import { knownJobs, now } from '../store';
import type { Gpu } from '../types';
import { visible } from '../words';
import { Badge } from './bits';

const GIB = 2 ** 30;
export const isDrained = (gpu: Gpu) =>
  gpu.state === 'drained' || gpu.state.startsWith('in quarantine');

/** Whether the GPU reports measurements; a simulated one does not. */
export const isMeasured = (gpu: Gpu) =>
  gpu.memory_used_bytes !== null || gpu.utilisation_percent !== null;

function kindOf(gpu: Gpu): string {
  if (gpu.state === 'free' || gpu.state === 'busy' || gpu.state === 'taken') return gpu.state;
  return 'closed';
}

function Memory({ gpu }: { gpu: Gpu }) {
  const total = gpu.memory_bytes;
  const used = gpu.memory_used_bytes;
  if (!total || used === null)
    return (
      <div class="meter-line dim">
        <span>mem</span>
        <span class="meter" />
        <span class="num">n/a</span>
      </div>
    );
  const byOthers = Math.min(
    used,
    gpu.other_processes.reduce((sum, one) => sum + (one.memory_bytes ?? 0), 0),
  );
  const byJobs = gpu.jobs.length ? used - byOthers : 0;
  const part = (size: number) => ({ width: `${(100 * size) / total}%` });
  return (
    <div class="meter-line">
      <span class="dim">mem</span>
      <span class="meter" role="img" aria-label={`memory ${bytes(used)} of ${bytes(total)}`}>
        <i class="ours" style={part(byJobs)} />
        <i class="theirs" style={part(byOthers)} />
        <i class="other" style={part(used - byJobs - byOthers)} />
      </span>
      <span class="num">
        {(used / GIB).toFixed(1)}
        <span class="dim"> / {bytes(total)}</span>
      </span>
    </div>
  );
}

export function GpuCard({ gpu, children }: { gpu: Gpu; children?: ComponentChildren }) {
  const known = knownJobs.value;
  const use = gpu.utilisation_percent;
  const hasMeters = isMeasured(gpu);
  return (
    <article class={`gpu ${kindOf(gpu)}`} aria-label={`GPU ${gpu.index}`}>
      <header>
        <b class="num">{gpu.index}</b>
        <span class="grow cut" title={gpu.uuid}>
          {gpu.model ?? 'simulated'}
        </span>
        <span class="gpu-state cut" title={gpu.state}>
          {gpu.state}
        </span>
      </header>
      {hasMeters && (
        <div class="meters">
          <Memory gpu={gpu} />
          <div class="meter-line">
            <span class="dim">util</span>
            <span
              class="meter"
              role="img"
              aria-label={use === null ? 'utilization unknown' : `utilization ${use}%`}
            >
              <i class="use" style={{ width: `${use ?? 0}%` }} />
            </span>
            <span class="num">{use === null ? <span class="dim">n/a</span> : `${use}%`}</span>
          </div>
        </div>
      )}
      {hasMeters && (
        <p class="num dim facts">
          <span>{gpu.power_watts === null ? '– W' : `${gpu.power_watts.toFixed(0)} W`}</span>
          <span>{gpu.temperature_celsius === null ? '– °C' : `${gpu.temperature_celsius} °C`}</span>
          <span>{gpu.slots > 1 ? `${gpu.slots} slots` : ''}</span>
        </p>
      )}
      {!hasMeters && gpu.slots > 1 && (
        <p class="num dim facts">
          <span>
            {gpu.jobs.length} of {gpu.slots} slots in use
          </span>
        </p>
      )}
      <ul>
        {gpu.jobs.map(({ id }) => {
          const job = known.get(id);
          const time = job ? runtime(job, now.value) : null;
          return (
            <li key={id}>
              <a href={jobHref(id)}>
                {job && <Badge state={job.state} hasText={false} />}
                <span class="num">{id}</span>
                <span class="cut grow">{job ? title(job) : ''}</span>
                <span class="num dim">{time === null ? '' : elapsed(time)}</span>
              </a>
            </li>
          );
        })}
        {gpu.other_processes.map((one) => (
          <li key={one.pid} class="other-process" title="not a Stoker job">
            <span class="cut grow">
              {visible(one.user ?? 'another user')}
              {one.pid ? ` · pid ${one.pid}` : ''}
            </span>
            <span class="num">{one.memory_bytes === null ? '' : bytes(one.memory_bytes)}</span>
          </li>
        ))}
      </ul>
      {gpu.reserved_for !== null && (
        <p class="gpu-reserved">
          reserved for{' '}
          <a href={jobHref(gpu.reserved_for)} class="num">
            {gpu.reserved_for}
          </a>
        </p>
      )}
      {children}
    </article>
  );
}

/** Rows of equal length with at most four GPUs: 6 GPUs as 3 and 3, 8 GPUs as 4 and 4. */
export function GpuGrid({ children }: { children: ComponentChildren[] }) {
  const total = children.length;
  return <div class={`gpus by-${Math.ceil(total / Math.ceil(total / 4))}`}>{children}</div>;
}
