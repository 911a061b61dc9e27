// The options that jobs, batches and sweeps share. An error that is about a field stands under it.
import { createContext, type ComponentChildren } from 'preact';
import { useContext } from 'preact/hooks';
import { ApiError } from '../api';
import { host } from '../store';
import { isTold } from '../stream';
import { LABELS, inPageWords } from '../words';
import type { Form, Values } from './drafts';

interface FieldOf {
  name: string;
  label?: string;
  hint?: string;
  type?: string;
  placeholder?: string;
}

const USUAL: FieldOf[] = [
  { name: 'gpus', type: 'number', placeholder: '1' },
  { name: 'gpu_mem', placeholder: 'whole card', hint: '20G shares the card; auto learns' },
  { name: 'time_limit', placeholder: 'none', hint: '90m, 4h' },
  { name: 'priority', type: 'number', placeholder: '0', hint: 'higher goes first' },
];
const FURTHER: FieldOf[] = [
  { name: 'tags', hint: 'comma between' },
  { name: 'after', hint: '7, 8:any' },
  { name: 'begin', hint: '+2h, 2026-12-24T18:00' },
  { name: 'retries', type: 'number', placeholder: '0' },
  { name: 'gpu_ids', hint: '0,2' },
  { name: 'prefer', placeholder: 'any', hint: '0,2' },
  { name: 'gpu_model', placeholder: 'any' },
  { name: 'min_gpu_mem', placeholder: 'any', hint: '40G' },
  { name: 'on_oom', placeholder: 'learned', hint: 'bigger, elsewhere, alone, fail' },
];
const BOXES = [
  { name: 'hold', label: 'Hold until released' },
  { name: 'restartable', label: 'May be run twice (restartable)' },
  { name: 'exclusive', label: 'Alone on its cards' },
];
const NUMBERS = ['gpus', 'priority', 'retries', 'trials', 'seed', 'max_parallel'];
const LISTS = ['tags', 'after', 'gpu_ids', 'prefer'];

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

export const OPTION_NAMES = [...USUAL, ...FURTHER, ...BOXES].map((one) => one.name).concat('cwd', 'env');

const Trouble = createContext<unknown>(null);

/** What is wrong with this field, if that is what is wrong. */
export function Problem({ name }: { name: string }) {
  const error = useContext(Trouble);
  if (!(error instanceof ApiError) || error.field !== name) return null;
  return <small class="bad-ink" role="alert" id={`problem-${name}`}>{sentence(error)}</small>;
}

export function useProblem(name: string) {
  const error = useContext(Trouble);
  const isWrong = error instanceof ApiError && error.field === name;
  return isWrong ? { 'aria-invalid': true, 'aria-describedby': `problem-${name}` } as const : {};
}

export function sentence(error: unknown): string {
  if (!(error instanceof ApiError)) return String(error);
  return inPageWords(error.hint ? `${error.message}; ${error.hint}` : error.message);
}

export function Field({ form, name, label, hint, type = 'text', placeholder, required }: FieldOf & { form: Form; required?: boolean }) {
  return (
    <label class="field">
      <span>{label ?? LABELS[name] ?? name}</span>
      <input type={type} name={name} value={form.values[name] ?? ''} placeholder={placeholder} required={required} {...useProblem(name)}
        onInput={(event) => form.set(name, event.currentTarget.value)} />
      {hint && <small>{hint}</small>}
      <Problem name={name} />
    </label>
  );
}

export function Area({ form, name, label, rows, placeholder, required }: {
  form: Form; name: string; label: string; rows: number; placeholder?: string; required?: boolean;
}) {
  return (
    <label class="field">
      <span>{label}</span>
      <textarea name={name} rows={rows} value={form.values[name] ?? ''} placeholder={placeholder} required={required} spellcheck={false} {...useProblem(name)}
        onInput={(event) => form.set(name, event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) event.currentTarget.form?.requestSubmit();
        }} />
      <Problem name={name} />
    </label>
  );
}

export function Resources({ form, more = [], without = [] }: { form: Form; more?: FieldOf[]; without?: string[] }) {
  const further = FURTHER.filter((one) => !without.includes(one.name));
  const error = useContext(Trouble);
  const isWrong = error instanceof ApiError && further.some((one) => one.name === error.field);
  const hasFurther = [...further, ...BOXES].some((one) => form.values[one.name]) || Boolean(form.values.env);
  return (
    <>
      <Field form={form} name="cwd" placeholder={`home folder of ${host.value.user || 'yours'}`} />
      <div class="fields">{[...more, ...USUAL].map((one) => <Field key={one.name} form={form} {...one} />)}</div>
      <details open={hasFurther || isWrong}>
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

/** What nobody can see in a form, and what surprises whoever knows the command line. */
export function EnvironmentNote({ of }: { of?: number }) {
  return (
    <p class="dim hint">
      {of === undefined
        ? <>Its environment is that of the server, as <code>stoker web</code> was started; <code>stoker submit</code> in a terminal takes the terminal's.</>
        : <>Its environment is that of job {of}, as with “Run again”; what you write under “Environment” comes on top.</>}
    </p>
  );
}

/** The button at the end, with what no single field is to blame for. */
export function Submitting({ form, error, isOff, children }: { form: Form; error: unknown; isOff: boolean; children: ComponentChildren }) {
  const isElsewhere = error instanceof ApiError && error.field && document.getElementsByName(error.field).length > 0;
  return (
    <>
      {error != null && !isElsewhere && !isTold(error) && <p class="bad-ink" role="alert">{sentence(error)}</p>}
      <div class="row">
        <button class="primary" disabled={isOff}>{children}</button>
        <span class="dim hint">Ctrl+Enter</span>
        <span class="grow" />
        {form.isChanged && <button type="button" class="link" onClick={form.clear}>Begin anew</button>}
      </div>
    </>
  );
}

export function SubmitForm({ onSubmit, error, children }: { onSubmit(): Promise<void>; error: unknown; children: ComponentChildren }) {
  return (
    <Trouble.Provider value={error}>
      <form class="submit" noValidate={false} onSubmit={(event) => { event.preventDefault(); void onSubmit(); }}>
        {children}
      </form>
    </Trouble.Provider>
  );
}
