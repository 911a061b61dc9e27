// The form for a clone of a sweep: the form for sweeps, filled with the definition that Python returns.
import { Failed, Loading } from '../parts/bits';
import type { Got } from '../types';
import { useFetch } from '../use-fetch';
import type { Values } from './drafts';
import { type OriginalSweep, SweepForm } from './submit-sweep';

type Definition = Got<'/api/sweeps/{name}/form'>;

export function SweepCloneForm({ name }: { name: string }) {
  const { data, error, reload } = useFetch<Definition>(
    `/api/sweeps/${encodeURIComponent(name)}/form`,
  );
  if (!data) return error ? <Failed error={error} retry={reload} /> : <Loading rows={6} />;
  return <SweepForm draft={`clone of sweep ${name}`} original={originalOf(name, data)} />;
}

const text = (value: unknown) => (value === null || value === undefined ? '' : String(value));

/** An option as the value of its field: lists with commas, options of engines in lines. */
function fieldOf(name: string, value: unknown): string {
  if (value === true) return 'on';
  if (Array.isArray(value)) return value.map(String).join(name === 'option' ? '\n' : ', ');
  return text(value);
}

export function originalOf(name: string, data: Definition): OriginalSweep {
  const options = Object.entries(data.options).map(([key, value]) => [key, fieldOf(key, value)]);
  const values: Values = {
    ...Object.fromEntries(options),
    command: data.command,
    params: JSON.stringify(data.parameters.map((one) => ({ name: one.name, text: one.text }))),
    method: data.method,
    trials: text(data.trials),
    seed: text(data.seed),
    metric: text(data.metric),
    goal: data.goal,
    max_parallel: text(data.max_parallel),
    name: data.name,
  };
  return { name, values, argv: data.argv, kept: data.kept };
}
