// What a form comes to, asked of the server while one types.
import { useEffect, useState } from 'preact/hooks';
import { ApiError, post } from '../api';
import { clock, duration } from '../format';
import { isTold } from '../stream';
import { visible } from '../words';
import { sentence } from './submit-fields';

/** A job that would be queued; of a sweep only where and on what its trials run. */
interface Shown {
  argv?: string[];
  shell?: boolean;
  name?: string | null;
  cwd?: string;
  gpus?: number;
  needs?: string;
  priority?: number;
  time_limit?: number | null;
  retries?: number;
  hold?: boolean;
  begin_at?: string | null;
  after?: string[];
  tags?: string[];
}

export interface Preview {
  commands: string[];
  facts: string[];
  total: number;
  /** The sweep that this would continue. */
  known: string | null;
  error: ApiError | null;
  isBusy: boolean;
}

const NOTHING: Preview = { commands: [], facts: [], total: 0, known: null, error: null, isBusy: false };

/** Ask the server what would run, shortly after the last key. */
export function usePreview(path: string, body: Record<string, unknown> | null): Preview {
  const key = body === null ? '' : JSON.stringify(body);
  const [state, setState] = useState<Preview>(NOTHING);
  useEffect(() => {
    if (!key) return setState(NOTHING);
    const stop = new AbortController();
    setState((old) => ({ ...old, isBusy: true }));
    const timer = setTimeout(() => {
      post<Record<string, unknown>>(path, { ...JSON.parse(key), dry_run: true }, stop.signal).then(
        (answer) => setState(previewOf(answer)),
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

function previewOf(answer: Record<string, unknown>): Preview {
  const found = (answer.commands ?? answer.dry_run ?? []) as (string | Shown)[];
  const first = found[0];
  return {
    commands: found.map((one) => (typeof one === 'string' ? one : commandText(one))),
    facts: factsOf(typeof first === 'object' ? first : (answer as Shown), found.filter((one) => typeof one === 'object')),
    total: Number(answer.total ?? found.length),
    known: (answer.known as string | undefined) ?? null,
    error: null,
    isBusy: false,
  };
}

/** What holds for all of them, in words; where they differ nothing is said. */
function factsOf(first: Shown, all: Shown[]): string[] {
  const isShared = (name: keyof Shown) => all.every((one) => JSON.stringify(one[name]) === JSON.stringify(first[name]));
  const facts: [keyof Shown, string | false | null | undefined][] = [
    ['cwd', first.cwd && `in ${first.cwd}`],
    ['needs', first.needs ?? (first.gpus === undefined ? null : first.gpus ? `${first.gpus} gpu${first.gpus === 1 ? '' : 's'}` : 'no gpu')],
    ['time_limit', first.time_limit ? `for at most ${duration(first.time_limit)}` : null],
    ['priority', first.priority ? `priority ${first.priority}` : null],
    ['retries', first.retries ? `up to ${first.retries} more attempts` : null],
    ['after', first.after?.length ? `after ${first.after.join(', ')}` : null],
    ['begin_at', first.begin_at && `not before ${clock(first.begin_at)}`],
    ['hold', first.hold && 'held until released'],
    ['tags', first.tags?.length ? `tags ${first.tags.join(', ')}` : null],
  ];
  return facts.filter(([name, text]) => text && isShared(name)).map(([, text]) => visible(String(text)));
}

function commandText({ argv, shell, name }: Shown): string {
  const words = (shell ? argv?.at(-1) : argv?.map(quoted).join(' ')) ?? '';
  return name ? `${name}: ${words}` : words;
}

const quoted = (word: string) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`);

export function PreviewPanel({ preview, none, what }: { preview: Preview; none: string; what: string }) {
  const { commands, facts, total, error, isBusy } = preview;
  const first = commands.slice(0, 100);
  return (
    <aside class="preview" aria-label="Preview" aria-busy={isBusy}>
      <h2>What would run {total > 0 && <span class="dim num">{total} {what}{total === 1 ? '' : 's'}</span>}</h2>
      <div aria-live="polite">
        {error && !isTold(error) && <p class="bad-ink">{sentence(error)}</p>}
        {!error && !first.length && <p class="dim">{total ? 'Each point is chosen when the results of those before are known.' : none}</p>}
        {preview.known && <p>Continues sweep <b>{preview.known}</b>: only what is missing runs.</p>}
      </div>
      <ol>{first.map((text, i) => <li key={i}><code>{visible(text)}</code></li>)}</ol>
      {total > first.length && first.length > 0 && <p class="dim num">and {total - first.length} more</p>}
      {facts.length > 0 && <ul class="preview-facts dim">{facts.map((fact) => <li key={fact}>{fact}</li>)}</ul>}
    </aside>
  );
}
