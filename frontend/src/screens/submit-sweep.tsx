// The form for a sweep: a command with placeholders, and the values of its parameters.
import { useEffect, useState } from 'preact/hooks';
import { post } from '../api';
import { plural } from '../format';
import { notify } from '../parts/toast';
import { go, sweepHref } from '../route';
import { visible } from '../words';
import { type Values, useForm } from './drafts';
import {
  Area,
  EnvironmentNote,
  Field,
  OPTION_NAMES,
  FieldError,
  Resources,
  SubmitForm,
  SubmitRow,
  optionsOf,
} from './submit-fields';
import { PreviewPanel, usePreview } from './submit-preview';

const METHODS = ['grid', 'shuffled', 'random', 'lhs', 'tpe', 'gp', 'cmaes', 'nsgaii'];
const RESERVED = ['params', 'id', 'dir', 'gpu'];
const SINGLE_JOB_OPTIONS = ['array', 'after', 'begin', 'group'];
const HELP = [
  ['1e-3,1e-4', 'these values'],
  ['range(3)', '0, 1, 2'],
  ['log(1e-5,1e-1)', 'a number, sampled on a log scale (not for grids)'],
  ['interval(0,0.5)', 'a number, sampled uniformly'],
  ['int(1,8)', 'an integer'],
];

interface Param {
  name: string;
  text: string;
}

const NONE: Param = { name: '', text: '' };

/** The parameter names in `{braces}` of a command. */
export function placeholders(command: string): string[] {
  const found = [...command.replaceAll('{{', '').matchAll(/\{([A-Za-z_][\w.]*)\}/g)].map(
    (match) => match[1]!,
  );
  return [...new Set(found)].filter((name) => !RESERVED.includes(name));
}

/** The sweep that a form clones. */
export interface OriginalSweep {
  name: string;
  values: Values;
  /** The argv of a command without a shell; used as long as the command is not edited. */
  argv: string[] | null;
  /** What the clone keeps besides the fields of the form, in words. */
  kept: string[];
}

export function SweepForm({ draft, original }: { draft: string; original?: OriginalSweep }) {
  const form = useForm(draft, original?.values ?? { method: 'grid', goal: '' });
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setBusy] = useState(false);
  const { values } = form;
  const params: Param[] = values.params ? JSON.parse(values.params) : [NONE];
  const setParams = (next: Param[]) =>
    form.set('params', JSON.stringify(next.length ? next : [NONE]));
  const command = values.command ?? '';

  // Add a row for each placeholder in the command.
  useEffect(() => {
    const wanted = placeholders(command);
    const kept = params.filter((one) => one.text || wanted.includes(one.name));
    const names = kept.flatMap((one) => one.name.split(',')); // `lr,bs` has values together
    const missing = wanted.filter((name) => !names.includes(name));
    if (missing.length || kept.length < params.filter((one) => one.name).length)
      setParams([...kept, ...missing.map((name) => ({ name, text: '' }))]);
  }, [command]);

  const given = params.filter((one) => one.name.trim() && one.text.trim());
  const needsTrials = !['grid', 'shuffled'].includes(values.method ?? '') || Boolean(values.trials);
  const isSameCommand = original?.argv && command === original.values.command;
  const body = {
    ...(isSameCommand ? { argv: original.argv } : { command }),
    ...(original ? { based_on: original.name } : {}),
    parameters: Object.fromEntries(given.map((one) => [one.name.trim(), one.text.trim()])),
    method: values.method,
    ...optionsOf(values, [
      'name',
      'max_parallel',
      ...(needsTrials ? ['trials', 'seed'] : values.method === 'shuffled' ? ['seed'] : []),
    ]),
    ...(values.metric?.trim()
      ? { metric: values.metric.trim() + (values.goal ? `:${values.goal}` : '') }
      : {}),
    options: optionsOf(
      values,
      OPTION_NAMES.filter((name) => !SINGLE_JOB_OPTIONS.includes(name)),
    ),
  };
  const isReady =
    Boolean(command.trim()) &&
    given.length > 0 &&
    params.every((one) => !one.name || one.text.trim());
  const preview = usePreview('/api/sweeps', isReady ? body : null);

  const submit = async () => {
    setBusy(true);
    setError(null);
    try {
      const made = await post<{ sweep: string; added: number }>('/api/sweeps', body);
      form.clear();
      notify(`Sweep ${made.sweep}: ${plural(made.added, 'trial')}`);
      go(sweepHref(made.sweep));
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  const change = (at: number, part: Partial<Param>) =>
    setParams(params.map((one, i) => (i === at ? { ...one, ...part } : one)));

  return (
    <SubmitForm onSubmit={submit} error={error ?? preview.error}>
      <div>
        <Area
          form={form}
          name="command"
          label="Command, with {name} for each parameter"
          rows={3}
          placeholder="python train.py --lr {lr} --seed {seed}"
          required
        />
        <fieldset>
          <legend>Parameters</legend>
          {params.map((one, i) => (
            <div key={i}>
              <div class="param">
                <input
                  aria-label="Parameter name"
                  class="mono"
                  value={one.name}
                  placeholder="lr"
                  onInput={(event) => change(i, { name: event.currentTarget.value })}
                />
                <input
                  aria-label={`Values of ${one.name || 'the parameter'}`}
                  class="mono"
                  value={one.text}
                  placeholder="1e-3,1e-4"
                  onInput={(event) => change(i, { text: event.currentTarget.value })}
                />
                <button
                  type="button"
                  class="icon"
                  aria-label={`Remove ${one.name}`}
                  onClick={() => setParams(params.filter((_, n) => n !== i))}
                >
                  ×
                </button>
              </div>
              <FieldError name={`parameters.${one.name}`} />
            </div>
          ))}
          <div class="row">
            <button type="button" onClick={() => setParams([...params, NONE])}>
              Add parameter
            </button>
          </div>
          <dl class="grammar">
            {HELP.map(([text, meaning]) => [
              <dt key={text}>
                <code>{text}</code>
              </dt>,
              <dd key={meaning} class="dim">
                {meaning}
              </dd>,
            ])}
          </dl>
        </fieldset>
        <div class="fields">
          <label class="field">
            <span>Method</span>
            <select
              value={values.method}
              onChange={(event) => form.set('method', event.currentTarget.value)}
            >
              {METHODS.map((method) => (
                <option key={method}>{method}</option>
              ))}
            </select>
          </label>
          {needsTrials && <Field form={form} name="trials" label="Trials" type="number" required />}
          <Field form={form} name="metric" label="Metric" placeholder="val_loss" />
          <label class="field">
            <span>Goal</span>
            <select
              value={values.goal}
              onChange={(event) => form.set('goal', event.currentTarget.value)}
            >
              <option value="">by the name of the metric</option>
              <option value="min">minimize</option>
              <option value="max">maximize</option>
            </select>
          </label>
          <Field
            form={form}
            name="max_parallel"
            label="Parallel trials"
            type="number"
            placeholder="no limit"
          />
          <Field
            form={form}
            name="name"
            label="Name"
            placeholder="generated"
            required={original !== undefined}
          />
          {values.method !== 'grid' && (
            <Field form={form} name="seed" label="Seed" type="number" placeholder="generated" />
          )}
        </div>
        <Resources form={form} without={SINGLE_JOB_OPTIONS} />
        {original ? <KeptNote original={original} /> : <EnvironmentNote />}
        <SubmitRow form={form} error={error} isDisabled={isBusy || !preview.total}>
          Start sweep{preview.total ? ` of ${plural(preview.total, 'trial')}` : ''}
        </SubmitRow>
      </div>
      <PreviewPanel
        preview={preview}
        what="trial"
        none="Write a command with {name} placeholders, and values for each name."
      />
    </SubmitForm>
  );
}

function KeptNote({ original }: { original: OriginalSweep }) {
  return (
    <div class="dim hint">
      <p>
        The trials get the environment of sweep {visible(original.name)}; variables under
        “Environment” are added.
      </p>
      {original.kept.length > 0 && <p>Kept from it: {original.kept.map(visible).join('; ')}.</p>}
    </div>
  );
}
