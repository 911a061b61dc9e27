// Texts for the web UI: labels of form fields, and names of jobs made safe to display.

export const LABELS: Record<string, string> = {
  command: 'Command',
  text: 'Jobs',
  name: 'Name',
  cwd: 'Working directory',
  gpus: 'GPUs',
  on: 'Runs on',
  nodes: 'Nodes',
  option: 'Engine options',
  gpu_mem: 'GPU memory',
  gpu_ids: 'Allowed GPUs',
  prefer: 'Preferred GPUs',
  gpu_model: 'GPU model',
  min_gpu_mem: 'Minimum GPU memory',
  exclusive: 'Exclusive GPUs',
  snapshot: 'Snapshot of the code',
  cpus: 'CPU cores',
  mem: 'Host memory',
  need: 'Counters',
  on_oom: 'When out of GPU memory',
  share: 'GPU sharing',
  warm: 'Warm start',
  notify: 'Notify',
  profile: 'Settings profile',
  conda: 'Conda environment',
  venv: 'Virtual environment',
  uv: 'uv project',
  module: 'Modules',
  container: 'Container',
  mount: 'Mounts',
  priority: 'Priority',
  time_limit: 'Time limit',
  retries: 'Retries',
  restartable: 'Restartable',
  preemptible: 'Preemptible',
  tags: 'Tags',
  group: 'Fair-share group',
  after: 'Run after jobs',
  array: 'Array of indices',
  begin: 'Earliest start',
  env: 'Environment',
  hold: 'Hold until released',
  trials: 'Trials',
  metric: 'Metric',
  method: 'Method',
  max_parallel: 'Parallel trials',
  seed: 'Seed',
};

/**
 * Replace the command-line flags in a server message by field labels: `use --gpus 2` becomes
 * `use “GPUs” 2`. Commands such as `stoker gpus --on lab` stay as they are.
 */
export function withFieldLabels(text: string): string {
  return text.replace(
    /\bstoker [a-z][^;`]*|`?--([a-z][a-z-]+)`?/g,
    (found: string, name?: string) => {
      const label = name && LABELS[name.replaceAll('-', '_')];
      return label ? `“${label}”` : found;
    },
  );
}

/** The same for an error about a form, which names options as keys: "`gpus`" and `gpus=2`. */
export function withKeyLabels(text: string): string {
  const label = (name: string) => (LABELS[name] ? `“${LABELS[name]}”` : null);
  return withFieldLabels(text)
    .replace(/`([a-z][a-z_]+)`/g, (key: string, name: string) => label(name) ?? key)
    .replace(/\b([a-z][a-z_]+)=(?=\S)/g, (key: string, name: string) => {
      const found = label(name);
      return found ? `${found} ` : key;
    });
}

// Format characters (including bidirectional overrides), control characters and unusual line ends:
// with them, one name could be made to look like another.
const INVISIBLE = /[\p{Cf}\p{Cc}\p{Zl}\p{Zp}\p{Cs}]/gu;

/**
 * Escape invisible characters in text of a job, as text/logs/log_lines.py does in logs. The server sends
 * names and commands unchanged, since forms submit them again.
 */
export function visible(text: string): string {
  return text.replace(INVISIBLE, (char) => {
    if (char === '\n' || char === '\t') return char;
    const code = char.codePointAt(0)!;
    const isByte = code >= 0xdc80 && code <= 0xdcff; // a byte that was not valid UTF-8
    return isByte || code < 256
      ? `\\x${(code & 0xff).toString(16).padStart(2, '0')}`
      : `\\u${code.toString(16).padStart(4, '0')}`;
  });
}
