// The form values of an existing job, to be edited and submitted as a new job. Numbers are exact, not
// rounded for display. The environment is not included: the server copies it from the job, so that no
// secret is sent to the browser.
import type { JobDetail } from '../types';
import type { Values } from './drafts';

export interface Original {
  id: number;
  values: Values;
  /** The argv of a job without a shell; used as long as the command is not edited. */
  argv: string[] | null;
}

const UNITS: [string, number][] = [
  ['G', 2 ** 30],
  ['M', 2 ** 20],
  ['K', 2 ** 10],
];

export function exactSize(bytes: number | null): string {
  if (bytes === null) return '';
  const [unit, size] = UNITS.find(([, one]) => bytes % one === 0) ?? ['', 1];
  return `${bytes / size}${unit}`;
}

export function exactTime(seconds: number | null): string {
  if (seconds === null) return '';
  if (seconds % 3600 === 0) return `${seconds / 3600}h`;
  return seconds % 60 === 0 ? `${seconds / 60}m` : `${seconds}s`;
}

const box = (is: boolean) => (is ? 'on' : '');

export function cloneOf(job: JobDetail): Original {
  const startsLater =
    job.eligible_at !== null && !job.attempts && Date.parse(job.eligible_at) > Date.now();
  return {
    id: job.id,
    argv: job.shell ? null : job.argv,
    values: {
      command: job.command,
      name: job.name ?? '',
      cwd: job.cwd,
      gpus: String(job.gpus),
      on: job.on,
      nodes: job.nodes > 1 ? String(job.nodes) : '',
      option: job.option.join('\n'),
      gpu_mem: job.gpu_mem_auto ? 'auto' : exactSize(job.gpu_mem_bytes),
      gpu_ids: job.gpu_ids.join(', '),
      prefer: job.prefer.join(', '),
      gpu_model: job.gpu_model ?? '',
      min_gpu_mem: exactSize(job.min_gpu_mem_bytes),
      cpus: job.cpus === null ? '' : String(job.cpus),
      mem: job.mem_auto ? 'auto' : exactSize(job.mem_bytes),
      need: Object.entries(job.need)
        .map(([name, amount]) => `${name}=${amount}`)
        .join(', '),
      on_oom: job.on_oom ?? '',
      share: job.share ?? '',
      warm: job.warm ?? '',
      notify: job.notify.join(', '),
      profile: '',
      conda: job.conda ?? '',
      venv: job.venv ?? '',
      uv: box(job.uv),
      module: job.module.join(', '),
      container: job.container ?? '',
      mount: job.mount.join(', '),
      time_limit: exactTime(job.time_limit),
      priority: job.priority ? String(job.priority) : '',
      retries: job.retries ? String(job.retries) : '',
      tags: job.tags.join(', '),
      group: job.group ?? '',
      array: '', // a clone of one of its jobs is a single job
      after: job.after.map((one) => `${one.job}:${one.condition}`).join(', '),
      begin: startsLater ? job.eligible_at! : '',
      restartable: box(job.restartable && !job.preemptible),
      preemptible: box(job.preemptible),
      exclusive: box(job.exclusive),
      snapshot: box(job.snapshot !== null),
      hold: box(job.state === 'held'),
    },
  };
}
