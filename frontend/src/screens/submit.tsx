// The forms for a job, a batch or a sweep, each with a live preview.
import { Failed, Loading, Tabs } from '../parts/bits';
import { Heading } from '../parts/heading';
import { href, replace, route } from '../route';
import { isReadOnly } from '../store';
import type { JobDetail } from '../types';
import { useFetch } from '../use-fetch';
import { visible } from '../words';
import { BatchForm } from './submit-batch';
import { cloneOf } from './submit-clone';
import { SweepCloneForm } from './submit-sweep-clone';
import { JobForm } from './submit-job';
import { SweepForm } from './submit-sweep';

const KINDS = [
  { value: 'job', label: 'Job' },
  { value: 'batch', label: 'Batch' },
  { value: 'sweep', label: 'Sweep' },
];

export function SubmitScreen() {
  const kind = route.value.query.get('kind') ?? 'job';
  const from = route.value.query.get('from');
  const clone = kind === 'sweep' ? route.value.query.get('clone') : null;
  if (isReadOnly.value)
    return <Failed error="The web UI is read-only (it was started with --read-only)" />;
  return (
    <>
      <header class="page-head">
        <div class="grow">
          <Heading key={from ?? clone ?? ''}>
            {from ? `Clone of job ${from}` : clone ? `Clone of sweep ${visible(clone)}` : 'Submit'}
          </Heading>
        </div>
        {!from && !clone && (
          <Tabs
            label="What to submit"
            value={kind}
            options={KINDS}
            onPick={(picked) => replace(href(['submit'], { kind: picked }))}
          />
        )}
      </header>
      {from ? (
        <CloneForm key={from} from={from} />
      ) : kind === 'batch' ? (
        <BatchForm />
      ) : clone ? (
        <SweepCloneForm key={clone} name={clone} />
      ) : kind === 'sweep' ? (
        <SweepForm key="new" draft="sweep" />
      ) : (
        <JobForm key="new" draft="job" />
      )}
    </>
  );
}

function CloneForm({ from }: { from: string }) {
  const { data, error, reload } = useFetch<{ job: JobDetail }>(
    `/api/jobs/${encodeURIComponent(from)}`,
  );
  if (!data) return error ? <Failed error={error} retry={reload} /> : <Loading rows={6} />;
  return <JobForm draft={`clone ${from}`} original={cloneOf(data.job)} />;
}
