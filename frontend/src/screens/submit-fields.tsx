// The options that jobs, batches and sweeps share, and the preview beside each form.
import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { ApiError, post } from '../api';
import { bytes, duration } from '../format';
import type { JobDetail } from '../types';

export type Values = Record<string, string>;

interface FieldOf {
  name: string;
  label: string;
  hint?: string;
  type?: string;
  placeholder?: string;
}

const USUAL: FieldOf[] = [
  { name: 'gpus', label: 'GPUs', type: 'number', placeholder: '1' },
  { name: 'gpu_mem', label: 'GPU memory', placeholder: 'whole card', hint: '20G shares the card; auto learns' },
  { name: 'time_limit', label: 'Time limit', placeholder: 'none', hint: '90m, 4h' },
  { name: 'priority', label: 'Priority', type: 'number', placeholder: '0' },
];
const FURTHER: FieldOf[] = [
  { name: 'cwd', label: 'Folder', placeholder: 'home folder' },
  { name: 'tags', label: 'Tags', hint: 'comma between' },
  { name: 'after', label: 'After jobs', hint: '7, 8:any' },
  { name: 'begin', label: 'Not before', hint: '22:00, +2h' },
  { name: 'retries', label: 'Retries', type: 'number', placeholder: '0' },
  { name: 'gpu_ids', label: 'Only GPUs', hint: '0,2' },
  { name: 'gpu_model', label: 'GPU model', placeholder: 'any' },
];
const BOXES = [
  { name: 'hold', label: 'Hold until released' },
  { name: 'restartable', label: 'May be run twice (restartable)' },
  { name: 'exclusive', label: 'Alone on its cards' },
];
const NUMBERS = ['gpus', 'priority', 'retries', 'trials', 'seed', 'max_parallel'];
const LISTS = ['tags', 'after', 'gpu_ids'];

/** What the form says, as the server wants it; what was left empty is left out. */
export function optionsOf(values: Values, names: string[]): Record<string, unknown> {
  const options: Record<string, unknown> = {};
  for (const name of names) {
    const text = (values[name] ?? '').trim();
    if (!text) continue;
    if (NUMBERS.includes(name)) options[name] = Number(text);
    else if (LISTS.includes(name)) options[name] = text.split(',').map((one) => one.trim()).filter(Boolean);
    else if (BOXES.some((box) => box.name === name)) options[name] = true;
    else if (name === 'env') options[name] = Object.fromEntries(text.split('\n').filter((line) => line.includes('=')).map((line) => [line.slice(0, line.indexOf('=')).trim(), line.slice(line.indexOf('=') + 1)]));
    else options[name] = text;
  }
  return options;
}

export const OPTION_NAMES = [...USUAL, ...FURTHER, ...BOXES].map((one) => one.name).concat('env');

/** A job as the values of a form, to be changed and submitted anew. */
export function valuesOf(job: JobDetail): Values {
  const values: Values = {
    command: job.command,
    name: job.name ?? '',
    cwd: job.cwd,
    gpus: String(job.gpus),
    gpu_mem: job.gpu_mem_auto ? 'auto' : job.gpu_mem_bytes ? bytes(job.gpu_mem_bytes).replace(/ (.)B$/, '$1') : '',
    time_limit: job.time_limit === null ? '' : duration(job.time_limit).replace('.0', ''),
    priority: job.priority ? String(job.priority) : '',
    retries: job.retries ? String(job.retries) : '',
    tags: job.tags.join(', '),
    gpu_model: job.gpu_model ?? '',
    restartable: job.restartable ? 'on' : '',
    exclusive: job.exclusive ? 'on' : '',
  };
  return values;
}

export interface Form {
  values: Values;
  set(name: string, value: string): void;
}

export function useForm(start: Values): Form {
  const [values, setValues] = useState(start);
  return { values, set: (name, value) => setValues((old) => ({ ...old, [name]: value })) };
}

export function Field({ form, name, label, hint, type = 'text', placeholder, required }: FieldOf & { form: Form; required?: boolean }) {
  return (
    <label class="field">
      <span>{label}</span>
      <input type={type} name={name} value={form.values[name] ?? ''} placeholder={placeholder} required={required}
        onInput={(event) => form.set(name, event.currentTarget.value)} />
      {hint && <small>{hint}</small>}
    </label>
  );
}

export function Area({ form, name, label, rows, placeholder, required }: {
  form: Form; name: string; label: string; rows: number; placeholder?: string; required?: boolean;
}) {
  return (
    <label class="field">
      <span>{label}</span>
      <textarea name={name} rows={rows} value={form.values[name] ?? ''} placeholder={placeholder} required={required} spellcheck={false}
        onInput={(event) => form.set(name, event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) event.currentTarget.form?.requestSubmit();
        }} />
    </label>
  );
}

export function Resources({ form, more = [], without = [] }: { form: Form; more?: FieldOf[]; without?: string[] }) {
  const further = FURTHER.filter((one) => !without.includes(one.name));
  const hasFurther = [...further, ...BOXES].some((one) => form.values[one.name]) || Boolean(form.values.env);
  return (
    <>
      <div class="fields">{[...more, ...USUAL].map((one) => <Field key={one.name} form={form} {...one} />)}</div>
      <details open={hasFurther}>
        <summary>More options</summary>
        <div class="fields">{further.map((one) => <Field key={one.name} form={form} {...one} />)}</div>
        <Area form={form} name="env" label="Environment" rows={2} placeholder="NAME=value, one a line" />
        {BOXES.map((box) => (
          <label key={box.name} class="check">
            <input type="checkbox" checked={Boolean(form.values[box.name])} onChange={(event) => form.set(box.name, event.currentTarget.checked ? 'on' : '')} />
            {box.label}
          </label>
        ))}
      </details>
    </>
  );
}

export interface Preview {
  commands: string[];
  total: number;
  /** The sweep that this would continue. */
  known: string | null;
  error: ApiError | null;
  isBusy: boolean;
}

const NOTHING: Preview = { commands: [], total: 0, known: null, error: null, isBusy: false };

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
        (answer) => {
          const found = (answer.commands ?? answer.dry_run ?? []) as unknown[];
          setState({ commands: found.map(commandText), total: Number(answer.total ?? found.length), known: (answer.known as string | undefined) ?? null, error: null, isBusy: false });
        },
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

function commandText(one: unknown): string {
  if (typeof one === 'string') return one;
  const { argv, shell, command, name } = one as { argv?: string[]; shell?: boolean | string; command?: string; name?: string };
  const words = command ?? (typeof shell === 'string' ? shell : shell ? argv?.at(-1) : argv?.map(quoted).join(' ')) ?? '';
  return name ? `${name}: ${words}` : words;
}

const quoted = (word: string) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`);

export function PreviewPanel({ preview, none, what }: { preview: Preview; none: string; what: string }) {
  const { commands, total, error, isBusy } = preview;
  const first = commands.slice(0, 100);
  return (
    <aside class="preview" aria-label="Preview" aria-busy={isBusy}>
      <h2>What would run {total > 0 && <span class="dim num">{total} {what}{total === 1 ? '' : 's'}</span>}</h2>
      <div aria-live="polite">
        {error && (
          <p class="bad-ink">
            {error.message}
            {error.hint && <small class="dim"> {error.hint}</small>}
          </p>
        )}
        {!error && !first.length && <p class="dim">{total ? 'Each point is chosen when the results of those before are known.' : none}</p>}
        {preview.known && <p>Continues sweep <b>{preview.known}</b>: only what is missing runs.</p>}
      </div>
      <ol class={isBusy ? 'old' : ''}>{first.map((text, i) => <li key={i}><code>{text}</code></li>)}</ol>
      {total > first.length && <p class="dim num">and {total - first.length} more</p>}
    </aside>
  );
}

export function SubmitForm({ onSubmit, children }: { onSubmit(): Promise<void>; children: ComponentChildren }) {
  return (
    <form class="submit" onSubmit={(event) => { event.preventDefault(); void onSubmit(); }}>
      {children}
    </form>
  );
}
