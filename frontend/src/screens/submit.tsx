// New work: one job, many lines, or a sweep. What would run is shown while one types.
import { useEffect, useState } from 'preact/hooks';
import { get } from '../api';
import { Failed, Loading, Tabs } from '../parts/bits';
import { href, replace, route } from '../route';
import { isReadOnly } from '../store';
import type { JobDetail } from '../types';
import { BatchForm } from './submit-batch';
import { JobForm } from './submit-job';
import { SweepForm } from './submit-sweep';
import { type Values, valuesOf } from './submit-fields';

const KINDS = [{ value: 'job', label: 'Job' }, { value: 'batch', label: 'Batch' }, { value: 'sweep', label: 'Sweep' }];

export function SubmitScreen() {
  const kind = route.value.query.get('kind') ?? 'job';
  const from = route.value.query.get('from');
  const [start, setStart] = useState<Values | null>(from ? null : {});
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    if (!from) return setStart({});
    get<{ job: JobDetail }>(`/api/jobs/${encodeURIComponent(from)}`).then(({ job }) => setStart(valuesOf(job)), setError);
  }, [from]);

  if (isReadOnly.value) return <Failed error="This page is read-only: `stoker web --read-only`" />;
  return (
    <>
      <header class="page-head">
        <h1 class="grow">{from ? `Clone of job ${from}` : 'Submit'}</h1>
        {!from && <Tabs label="What to submit" value={kind} options={KINDS} onPick={(picked) => replace(href(['submit'], { kind: picked }))} />}
      </header>
      {error ? <Failed error={error} /> : !start ? <Loading rows={6} />
        : kind === 'batch' ? <BatchForm /> : kind === 'sweep' ? <SweepForm /> : <JobForm key={from} start={start} />}
    </>
  );
}
