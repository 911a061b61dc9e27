// The columns of the history, by the names that filters use.
import { ago, bytes, clock, duration, value } from '../format';
import { COLUMNS } from '../parts/job-table';
import type { Column } from '../parts/table';
import { sweepHref } from '../route';
import { now } from '../store';
import type { Job, TableJob } from '../types';
import { visible } from '../words';

export const STANDARD = [
  'id',
  'state',
  'name',
  'command',
  'result',
  'gpu',
  'duration',
  'submitted',
];
const OWN: Record<string, Column<Job>> = {
  id: COLUMNS.id,
  state: COLUMNS.state,
  result: COLUMNS.result,
  gpu: COLUMNS.gpu,
  duration: COLUMNS.time,
  submitted: COLUMNS.submitted,
  ended: COLUMNS.ended,
};
const HEADS: Record<string, string> = {
  gpus: 'GPUs',
  cpus: 'CPUs',
  gpu_mem: 'GPU memory',
  gpu_peak: 'GPU peak',
  gpu_use: 'GPU util',
  mem_peak: 'Host peak',
};
const SIZES = ['gpu_mem', 'gpu_peak', 'mem_peak'];
const WIDTHS: Record<string, number> = { command: 320, name: 180, folder: 260, sweep: 150 };
/** The first click on their heading shows the largest value. */
const DOWN_FIRST = [
  'id', 'duration', 'waited', 'submitted', 'started', 'ended', 'gpus', 'gpu_mem', 'gpu_peak',
  'gpu_use', 'mem_peak', 'energy', 'priority', 'attempts',
]; // prettier-ignore

export const isDownFirst = (name: string) => DOWN_FIRST.includes(name);

/** The columns for these names. Name and command, if both are chosen, share one. */
export function historyColumns(names: string[]): Column<Job>[] {
  const isJoined = names.includes('name') && names.includes('command');
  return names.flatMap((name): Column<Job>[] => {
    if (isJoined && name === 'name') return [{ ...COLUMNS.title, name: 'name', sort: true }];
    if (isJoined && name === 'command') return [];
    const own = OWN[name];
    return [own ? { ...own, name, sort: true } : generic(name)];
  });
}

/** Values that the server sends besides the job. */
export const sentColumns = (names: string[]) =>
  names.filter((name) => !(name in OWN) && name !== 'name' && name !== 'command');

function generic(name: string): Column<Job> {
  const head = HEADS[name] ?? (/^\w+$/.test(name) ? name[0]!.toUpperCase() + name.slice(1) : name);
  const isText = ['name', 'command', 'folder', 'tag', 'cause', 'backend', 'node'].includes(name);
  return {
    name,
    head: visible(head.replace(/^(metric|param)\./, '')),
    kind: isText || name === 'sweep' ? 'p-meta' : 'num p-meta',
    width: WIDTHS[name] ?? Math.max(96, 30 + 7.5 * head.length),
    sort: true,
    cell: (job) => <Cell name={name} job={job as TableJob} />,
  };
}

function Cell({ name, job }: { name: string; job: TableJob }) {
  const own = name === 'name' ? job.name : name === 'command' ? job.command : job.values?.[name];
  if (own === null || own === undefined) return <span class="dim no-phone">–</span>;
  if (name === 'sweep')
    return (
      <a class="cut" href={sweepHref(String(own))} tabIndex={-1}>
        {visible(String(own))}
      </a>
    );
  const text = textOf(name, own);
  return (
    <span class="cut" title={name === 'started' ? clock(isoOf(own)) : text}>
      <span class="only-phone dim">{visible(name.replace(/^(metric|param)\./, ''))}=</span>
      {text}
    </span>
  );
}

const isoOf = (at: unknown) => new Date(1000 * Number(at)).toISOString();

function textOf(name: string, own: unknown): string {
  if (typeof own === 'number') {
    if (SIZES.includes(name)) return bytes(own);
    if (name === 'waited') return duration(own);
    if (name === 'started') return ago(isoOf(own), now.value);
    if (name === 'gpu_use') return `${own.toFixed(0)}%`;
  }
  return value(own);
}
