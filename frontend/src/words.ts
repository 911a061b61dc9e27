// The server speaks of flags, since the command line says the same sentences. Here they are fields.

export const LABELS: Record<string, string> = {
  command: 'Command', text: 'Jobs', name: 'Name', cwd: 'Folder', gpus: 'GPUs', gpu_mem: 'GPU memory', gpu_ids: 'Only GPUs', prefer: 'GPUs first',
  gpu_model: 'GPU model', min_gpu_mem: 'Card of at least', exclusive: 'Alone on its cards', on_oom: 'Out of GPU memory', priority: 'Priority',
  time_limit: 'Time limit', retries: 'Retries', restartable: 'restartable', tags: 'Tags', after: 'After jobs', begin: 'Not before', env: 'Environment',
  hold: 'Hold until released', trials: 'Trials', metric: 'Metric', method: 'Method', max_parallel: 'At most at a time', seed: 'Seed',
};

/** `use --gpus 2` becomes `use “GPUs” 2`. */
export function inPageWords(text: string): string {
  return text.replace(/`?--([a-z][a-z-]+)`?/g, (flag: string, name: string) => {
    const label = LABELS[name.replaceAll('-', '_')];
    return label ? `“${label}”` : flag;
  });
}

// Format characters, among them those that turn the direction of text round; controls, and line
// ends of other kinds. A name must not be able to look like another one.
const INVISIBLE = /[\p{Cf}\p{Cc}\p{Zl}\p{Zp}\p{Cs}]/gu;

/** Text of a job with what cannot be seen made visible, as `stoker` prints it. */
export function visible(text: string): string {
  return text.replace(INVISIBLE, (char) => {
    if (char === '\n' || char === '\t') return char;
    const code = char.codePointAt(0)!;
    const isByte = code >= 0xdc80 && code <= 0xdcff; // what was not UTF-8
    return isByte || code < 256 ? `\\x${(code & 0xff).toString(16).padStart(2, '0')}` : `\\u${code.toString(16).padStart(4, '0')}`;
  });
}
