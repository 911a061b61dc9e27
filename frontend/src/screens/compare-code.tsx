// The code of two jobs side by side. Stoker keeps the commit of a job and its local changes, not the
// files of the commit.
import { filePairs } from '../compare-files';
import { Empty, Failed, Loading, Section } from '../parts/bits';
import { DiffText } from '../parts/code-diff';
import { jobHref } from '../route';
import type { Diff, JobDetail } from '../types';
import { useFetch } from '../use-fetch';
import { visible } from '../words';

export function CodeOfTwo({ jobs }: { jobs: [number, number] }) {
  const details = jobs.map((id) => useFetch<{ job: JobDetail }>(`/api/jobs/${id}`));
  const diffs = jobs.map((id) => useFetch<Diff>(`/api/jobs/${id}/diff`));
  const failed = [...details, ...diffs].find((one) => one.error && !one.data);
  if (failed) return <Failed error={failed.error} retry={failed.reload} />;
  const [first, second] = details.map((one) => one.data?.job);
  const [a, b] = diffs.map((one) => one.data);
  return (
    <Section title="Code">
      {!first || !second || !a || !b ? (
        <Loading rows={3} />
      ) : (
        <Changes first={first} second={second} diffs={[a, b]} />
      )}
    </Section>
  );
}

function Changes({
  first,
  second,
  diffs: [a, b],
}: {
  first: JobDetail;
  second: JobDetail;
  diffs: [Diff, Diff];
}) {
  const missing = [first, second].filter((job) => !job.code);
  if (missing.length)
    return (
      <Empty
        title={
          missing.length === 2
            ? 'Neither job ran in a git repository, so there is no code to compare.'
            : `Job ${missing[0]!.id} did not run in a git repository, so there is no code to compare.`
        }
      />
    );
  const commits = [first, second].map((job) => job.code!.commit?.slice(0, 12) ?? 'none');
  const isSameCommit = first.code!.commit === second.code!.commit;
  const pairs = filePairs(a.diff ?? '', b.diff ?? '');
  const differing = pairs.filter((pair) => !pair.isSame);
  const alike = pairs.filter((pair) => pair.isSame);
  // A job without local changes has no diff, and that is not a problem.
  const problems = [first, second].filter((job) => job.code!.problem);
  return (
    <>
      {!isSameCommit && (
        <p class="note" role="note">
          The commits differ: {visible(commits[0]!)} and {visible(commits[1]!)}. Stoker keeps the
          local changes of each job, not its commit, so only the local changes are shown. See the
          rest with{' '}
          <code>
            git diff {visible(commits[0]!)} {visible(commits[1]!)}
          </code>
          .
        </p>
      )}
      {problems.map((job) => (
        <p key={job.id} class="note" role="note">
          The local changes of job {job.id} are not known: {visible(job.code!.problem!)}.
        </p>
      ))}
      {isSameCommit && !differing.length && !problems.length && (
        <p class="pad">
          Both jobs ran the same code: commit {visible(commits[0]!)}
          {alike.length ? ' with the same local changes.' : ' without local changes.'}
        </p>
      )}
      {differing.length > 0 && (
        <div class="code-pair">
          {[first, second].map((job, i) => (
            <div key={job.id}>
              <h3>
                <a href={jobHref(job.id)}>Job {job.id}</a>{' '}
                <span class="dim">{visible(job.code!.summary)}</span>
              </h3>
              {differing.map((pair) => {
                const text = i ? pair.second : pair.first;
                return text === null ? (
                  <p key={pair.name} class="dim pad">
                    {visible(pair.name)}: not changed
                  </p>
                ) : (
                  <DiffText
                    key={pair.name}
                    label={`Changes of job ${job.id} in ${visible(pair.name)}`}
                    text={text}
                  />
                );
              })}
            </div>
          ))}
        </div>
      )}
      {differing.length > 0 && alike.length > 0 && (
        <p class="dim pad">
          The same changes in both: {alike.map((pair) => visible(pair.name)).join(', ')}
        </p>
      )}
    </>
  );
}
