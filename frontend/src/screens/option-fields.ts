// The fields of job options that the forms for jobs, batches and sweeps share, and the options of a
// request that their values make. tests/web_ui/test_formats.py compares the names with those in Python.
import type { Values } from './drafts';

export interface FieldSpec {
  name: string;
  label?: string;
  hint?: string;
  type?: string;
  placeholder?: string;
}

export const LOCAL = 'local';

export const COMMON: FieldSpec[] = [
  { name: 'gpus', type: 'number', placeholder: '1' },
  { name: 'gpu_mem', placeholder: 'whole GPU', hint: '20G shares the GPU; auto uses past peaks' },
  { name: 'time_limit', placeholder: 'none', hint: '90m, 4h' },
  { name: 'priority', type: 'number', placeholder: '0', hint: 'higher starts first' },
];
export const ADVANCED: FieldSpec[] = [
  { name: 'tags', hint: 'comma-separated' },
  { name: 'group', placeholder: 'none' },
  { name: 'array', placeholder: 'none', hint: '0-99%8 runs at most 8 at once' },
  { name: 'after', hint: '7, 8:any, 3-9, a name, a tag, @ (the last job)' },
  { name: 'begin', hint: '+2h, 2026-12-24T18:00' },
  { name: 'retries', type: 'number', placeholder: '0' },
  { name: 'gpu_ids', hint: '0,2' },
  { name: 'prefer', placeholder: 'any', hint: '0,2' },
  { name: 'gpu_model', placeholder: 'any' },
  { name: 'min_gpu_mem', placeholder: 'any', hint: '40G' },
  { name: 'cpus', type: 'number', placeholder: 'default' },
  { name: 'mem', placeholder: 'not reserved', hint: '16G; auto uses past peaks' },
  { name: 'need', placeholder: 'none', hint: 'licence=1' },
  { name: 'on_oom', placeholder: 'default', hint: 'bigger, elsewhere, alone, fail' },
  { name: 'share', placeholder: 'as the GPU', hint: 'mps, mps:50, time' },
  { name: 'warm', placeholder: 'off', hint: 'auto, or modules to import: torch' },
  { name: 'notify', placeholder: 'default', hint: 'failure, end:phone, all, none' },
  { name: 'profile', placeholder: 'none', hint: 'from the settings; other fields override it' },
  { name: 'conda', placeholder: 'none', hint: 'name or path' },
  { name: 'venv', placeholder: 'none', hint: 'path' },
  { name: 'module', placeholder: 'none', hint: 'gcc, cuda/12.4' },
  { name: 'container', placeholder: 'none', hint: 'image' },
  { name: 'mount', placeholder: 'none', hint: '/data:/data:ro, with a container' },
];
export const BOXES = [
  { name: 'hold', label: 'Hold until released' },
  { name: 'restartable', label: 'Restartable: may run again after a crash' },
  { name: 'preemptible', label: 'Preemptible: gives way to other jobs' },
  { name: 'uv', label: 'uv: run in the environment of the uv project' },
  { name: 'exclusive', label: 'Exclusive: no other jobs on its GPUs' },
  { name: 'snapshot', label: 'Snapshot: runs in a copy of its code' },
];
const OF_BACKENDS = ['nodes', 'option']; // shown and sent only if a backend is chosen
const NUMBERS = ['gpus', 'cpus', 'nodes', 'priority', 'retries', 'trials', 'seed', 'max_parallel'];
const LISTS = [
  ...['tags', 'after', 'gpu_ids', 'prefer', 'need', 'notify', 'module', 'mount', 'profile'],
];

export const OPTION_NAMES = [...COMMON, ...ADVANCED, ...BOXES]
  .map((one) => one.name)
  .concat('cwd', 'env', 'on', OF_BACKENDS);

/** The backend of a form; `missing` is that of jobs without a choice. */
export const backendOf = (values: Values, missing: string) => values.on || missing;

/** The form values as options of a request; empty fields are left out. */
export function requestOptions(
  values: Values,
  names: string[],
  defaultBackend: string,
): Record<string, unknown> {
  const options: Record<string, unknown> = {};
  const isLocal = backendOf(values, defaultBackend) === LOCAL;
  for (const name of names) {
    const text = (values[name] ?? '').trim();
    if (!text || (isLocal && OF_BACKENDS.includes(name))) continue;
    if (NUMBERS.includes(name)) options[name] = Number(text);
    else if (LISTS.includes(name)) options[name] = parts(text, ',');
    else if (name === 'option')
      options[name] = parts(text, '\n'); // values may contain commas
    else if (BOXES.some((box) => box.name === name)) options[name] = true;
    else if (name === 'env')
      options[name] = Object.fromEntries(
        text
          .split('\n')
          .filter((line) => line.includes('='))
          .map((line) => [
            line.slice(0, line.indexOf('=')).trim(),
            line.slice(line.indexOf('=') + 1),
          ]),
      );
    else options[name] = text;
  }
  return options;
}

const parts = (text: string, separator: string) =>
  text
    .split(separator)
    .map((one) => one.trim())
    .filter(Boolean);
