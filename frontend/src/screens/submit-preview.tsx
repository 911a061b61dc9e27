// A preview of the jobs that a form would submit, requested from the server while the user types.
import { useEffect, useState } from 'preact/hooks';
import { ApiError, post } from '../api';
import { clock, duration } from '../format';
import { isInBanner } from '../stream';
import { visible } from '../words';
import { errorText } from './submit-fields';

/** A job that would be submitted; for a sweep only the options that its trials share. */
interface PreviewJob {
  command?: string;
  name?: string | null;
  cwd?: string;
  needs?: string;
  option?: string[];
  environment?: string;
  metric?: string | null;
  priority?: number;
  time_limit?: number | null;
  retries?: number;
  hold?: boolean;
  snapshot?: boolean;
  begin_at?: string | null;
  array?: string | null;
  after?: string[];
  tags?: string[];
  notify?: string[];
}

export interface Preview {
  commands: string[];
  options: string[];
  total: number;
  /** The existing sweep that would be continued. */
  known: string | null;
  error: ApiError | null;
  isBusy: boolean;
}

const NOTHING: Preview = {
  commands: [],
  options: [],
  total: 0,
  known: null,
  error: null,
  isBusy: false,
};

/** Request a dry run 300 ms after the last change of `body`. */
export function usePreview(path: string, body: Record<string, unknown> | null): Preview {
  const key = body === null ? '' : JSON.stringify(body);
  const [state, setState] = useState<Preview>(NOTHING);
  useEffect(() => {
    if (!key) return setState(NOTHING);
    const stop = new AbortController();
    setState((old) => ({ ...old, isBusy: true }));
    const timer = setTimeout(() => {
      post<Record<string, unknown>>(path, { ...JSON.parse(key), dry_run: true }, stop.signal).then(
        (response) => setState(previewOf(response)),
        (error) => error instanceof ApiError && setState({ ...NOTHING, error }),
      );
    }, 300);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [key, path]);
  return state;
}

function previewOf(response: Record<string, unknown>): Preview {
  const found = (response.commands ?? response.dry_run ?? []) as (string | PreviewJob)[];
  const first = found[0];
  return {
    commands: found.map((one) => (typeof one === 'string' ? one : commandText(one))),
    options: commonOptions(
      typeof first === 'object' ? first : (response as PreviewJob),
      found.filter((one) => typeof one === 'object'),
    ),
    total: Number(response.total ?? found.length),
    known: (response.known as string | undefined) ?? null,
    error: null,
    isBusy: false,
  };
}

/** The options that all jobs have in common, as text. */
function commonOptions(first: PreviewJob, all: PreviewJob[]): string[] {
  const isShared = (name: keyof PreviewJob) =>
    all.every((one) => JSON.stringify(one[name]) === JSON.stringify(first[name]));
  const options: [keyof PreviewJob, string | false | null | undefined][] = [
    ['cwd', first.cwd && `in ${first.cwd}`],
    ['needs', first.needs],
    ['option', first.option?.length ? `engine options ${first.option.join(' ')}` : null],
    ['environment', first.environment],
    ['metric', first.metric && `metric ${first.metric}`],
    ['time_limit', first.time_limit ? `time limit ${duration(first.time_limit)}` : null],
    ['priority', first.priority ? `priority ${first.priority}` : null],
    ['retries', first.retries ? `up to ${first.retries} retries` : null],
    ['array', first.array ? `array ${first.array}` : null],
    ['after', first.after?.length ? `after ${first.after.join(', ')}` : null],
    ['begin_at', first.begin_at && `starts no earlier than ${clock(first.begin_at)}`],
    ['hold', first.hold && 'held until released'],
    ['notify', first.notify?.length ? `notifies ${first.notify.join(', ')}` : null],
    ['snapshot', first.snapshot && 'runs in a snapshot of its code'],
    ['tags', first.tags?.length ? `tags ${first.tags.join(', ')}` : null],
  ];
  return options
    .filter(([name, text]) => text && isShared(name))
    .map(([, text]) => visible(String(text)));
}

const commandText = ({ command = '', name }: PreviewJob) =>
  name ? `${name}: ${command}` : command;

export function PreviewPanel({
  preview,
  none,
  what,
}: {
  preview: Preview;
  none: string;
  what: string;
}) {
  const { commands, options, total, error, isBusy } = preview;
  const first = commands.slice(0, 100);
  return (
    <aside class="preview" aria-label="Preview" aria-busy={isBusy}>
      <h2>
        Preview{' '}
        {total > 0 && (
          <span class="dim num">
            {total} {what}
            {total === 1 ? '' : 's'}
          </span>
        )}
      </h2>
      <div aria-live="polite">
        {error && !isInBanner(error) && <p class="bad-ink">{errorText(error)}</p>}
        {!error && !first.length && (
          <p class="dim">
            {total ? 'The search chooses each trial from the results of earlier ones.' : none}
          </p>
        )}
        {preview.known && (
          <p>
            Continues sweep <b>{preview.known}</b>: only missing trials run.
          </p>
        )}
      </div>
      <ol>
        {first.map((text, i) => (
          <li key={i}>
            <code>{visible(text)}</code>
          </li>
        ))}
      </ol>
      {total > first.length && first.length > 0 && (
        <p class="dim num">and {total - first.length} more</p>
      )}
      {options.length > 0 && (
        <ul class="preview-facts dim">
          {options.map((option) => (
            <li key={option}>{option}</li>
          ))}
        </ul>
      )}
    </aside>
  );
}
