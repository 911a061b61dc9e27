// The log of a job in full height.
import { LogPane } from '../log/pane';
import { Failed, Loading } from '../parts/bits';
import { useKeys } from '../keys';
import { go, jobHref } from '../route';
import { JobHead, useJob } from './job';

export function LogScreen({ id }: { id: number }) {
  const { job, error, reload } = useJob(id);
  useKeys({
    '/': () => document.querySelector<HTMLInputElement>('.log-search')?.focus(),
    Escape: () => go(jobHref(id)),
  });
  if (!job) return error ? <Failed error={error} retry={reload} /> : <Loading rows={12} />;
  return (
    <div class="log-screen">
      <JobHead job={job} part="Log" reload={reload} />
      <LogPane job={job} isFull key={id} />
    </div>
  );
}
