// Why a job waits: a few words in lists; on demand, sentences and changes that would start the job.
import { patch } from '../api';
import { load, isReadOnly, knownJobs } from '../store';
import type { Job, JobDetail, WhatIf } from '../types';
import { useFetch } from '../use-fetch';
import { withFieldLabels, visible } from '../words';
import { Failed, Loading } from './bits';
import { CopyableCommand } from './copyable';
import { ask, inform } from './dialog';
import { notify } from './toast';

/** Why a waiting job waits, in a few words. */
export function shortWhy(job: Job): string {
  if (job.state === 'held') return 'held until released';
  const known = job.why_short ?? knownJobs.value.get(job.id)?.why_short;
  return visible(known || (Array.isArray(job.why) ? job.why.join('; ') : (job.why ?? '')));
}

/** The short reason in a list; a click shows all of it. The key `w` on the row does the same. */
export function WhyButton({ job }: { job: Job }) {
  const text = shortWhy(job);
  return text ? (
    <button
      class="why-text"
      tabIndex={-1}
      title="Show details (w)"
      onClick={() => void showWhy(job.id)}
    >
      {text}
    </button>
  ) : null;
}

export const showWhy = (id: number) => inform(`Why job ${id} waits`, <WhyDetails id={id} />);

function WhyDetails({ id }: { id: number }) {
  const fetched = useFetch<{ job: JobDetail }>(`/api/jobs/${id}`);
  const job = fetched.data?.job;
  if (!job)
    return fetched.error ? (
      <Failed error={fetched.error} retry={fetched.reload} />
    ) : (
      <Loading rows={4} />
    );
  return (
    <>
      <Reasons job={job} />
      <WhatIfs job={job} />
    </>
  );
}

/** All reasons, one sentence each. */
export function Reasons({ job }: { job: JobDetail }) {
  const reasons = job.why.length ? job.why : ['it starts now'];
  return (
    <ul class="reasons">
      {reasons.map((reason, i) => (
        <li key={i}>{withFieldLabels(visible(reason))}</li>
      ))}
    </ul>
  );
}

/** Changes that would start the job, as buttons that ask and then make the change. */
export function WhatIfs({ job }: { job: JobDetail }) {
  if (!job.what_if.length) return null;
  return (
    <div class="what-ifs" role="group" aria-label="Changes that would start it earlier">
      {job.what_if.map((one) =>
        isReadOnly.value ? (
          <p key={one.command}>
            It would {visible(one.words)}: <code>{visible(one.command)}</code>
          </p>
        ) : (
          <button key={one.command} type="button" onClick={() => void apply(job.id, one)}>
            {capital(visible(one.words))}
          </button>
        ),
      )}
    </div>
  );
}

async function apply(id: number, change: WhatIf): Promise<void> {
  const answer = await ask({
    title: `${capital(visible(change.words))}?`,
    body: (
      <>
        <p>This changes the request of job {id}. In a terminal:</p>
        <CopyableCommand command={visible(change.command)} />
      </>
    ),
    yes: `Change job ${id}`,
    run: async () => {
      await patch(`/api/jobs/${id}`, change.fields);
    },
  });
  if (!answer) return;
  notify(`Job ${id} changed`, `jobs ${id}`);
  await load().catch(() => undefined);
}

const capital = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);
