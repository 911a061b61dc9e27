// The code of a job at submit, and its diff on request.
import { useState } from 'preact/hooks';
import type { Diff, JobDetail } from '../types';
import { useFetch } from '../use-fetch';
import { visible } from '../words';

export function CodeOfJob({ job }: { job: JobDetail }) {
  const [isOpen, setOpen] = useState(false);
  const diff = useFetch<Diff>(isOpen ? `/api/jobs/${job.id}/diff` : null);
  if (!job.code) return null;
  return (
    <>
      {visible(job.code.summary)}{' '}
      {job.code.dirty && !job.code.problem && (
        <button class="link" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          {isOpen ? 'Hide diff' : 'Show diff'}
        </button>
      )}
      {isOpen && diff.data && <DiffText label="Diff" text={diff.data.diff ?? ''} />}
    </>
  );
}

/** The text of `git diff` with its added and removed lines in color. */
export function DiffText({ label, text }: { label: string; text: string }) {
  return (
    <pre class="diff" tabIndex={0} aria-label={label}>
      {text.split('\n').map((line, i) => (
        <span key={i} class={kindOf(line)}>
          {line.split('\t').map(visible).join('\t')}
          {'\n'}
        </span>
      ))}
    </pre>
  );
}

function kindOf(line: string): string {
  if (/^(diff |index |--- |\+\+\+ )/.test(line)) return 'dim';
  if (line.startsWith('+')) return 'diff-added';
  return line.startsWith('-') ? 'diff-removed' : '';
}
