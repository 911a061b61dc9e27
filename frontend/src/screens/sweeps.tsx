// All sweeps, newest first.
import { count, value } from '../format';
import { Empty, Failed, Loading, Progress } from '../parts/bits';
import { Heading } from '../parts/heading';
import { type Column, Table } from '../parts/table';
import { sweepHref } from '../route';
import { isReadOnly } from '../store';
import type { SweepSummary } from '../types';
import { visible } from '../words';
import { useChanges, useFetch } from '../use-fetch';

const COLUMNS: Column<SweepSummary>[] = [
  {
    name: 'name',
    head: 'Sweep',
    kind: 'p-title',
    width: 180,
    cell: (sweep) => (
      <a class="cut" href={sweepHref(sweep.name)} tabIndex={-1}>
        <b>{visible(sweep.name)}</b>
      </a>
    ),
  },
  {
    name: 'state',
    head: 'State',
    kind: 'p-end',
    width: 84,
    cell: (sweep) => <span class={`sweep-${sweep.state}`}>{sweep.state}</span>,
  },
  {
    name: 'progress',
    head: 'Trials',
    width: 150,
    kind: 'p-meta',
    cell: (sweep) => <Progress trials={sweep.trials} total={sweep.total} />,
  },
  {
    name: 'done',
    head: 'Done',
    kind: 'num p-meta',
    width: 96,
    cell: (sweep) => `${count(sweep.trials.done ?? 0)} / ${count(sweep.total)}`,
  },
  {
    name: 'failed',
    head: 'Failed',
    kind: 'num p-hide',
    width: 64,
    cell: (sweep) => {
      const bad = (sweep.trials.failed ?? 0) + (sweep.trials.lost ?? 0);
      return bad ? <span class="bad-ink">{count(bad)}</span> : <span class="dim">0</span>;
    },
  },
  {
    name: 'best',
    head: 'Best',
    kind: 'num p-meta',
    width: 160,
    cell: (sweep) =>
      sweep.best ? (
        <span class="cut">
          <span class="dim">{sweep.metric?.name} </span>
          {value(sweep.best.value)}
        </span>
      ) : (
        <span class="dim">–</span>
      ),
  },
  {
    name: 'command',
    head: 'Command',
    kind: 'wide p-hide',
    cell: (sweep) => (
      <code class="cut dim" title={visible(sweep.command)}>
        {visible(sweep.command)}
      </code>
    ),
  },
];

export function SweepsScreen() {
  const { data, error, reload } = useFetch<{ sweeps: SweepSummary[] }>('/api/sweeps');
  useChanges((delta) => Boolean(delta.sweeps?.length || delta.removed_sweeps?.length), reload);
  return (
    <>
      <header class="page-head">
        <Heading>Sweeps</Heading>
      </header>
      {error && !data ? (
        <Failed error={error} retry={reload} />
      ) : !data ? (
        <Loading rows={8} />
      ) : !data.sweeps.length ? (
        <Empty title="No sweeps yet">
          {!isReadOnly.value && (
            <p>
              <a class="button primary" href="#/submit?kind=sweep">
                Start a sweep
              </a>
            </p>
          )}
          <p>
            or run <code>stoker sweep 'python train.py --lr {'{lr}'}' lr=1e-3,1e-4</code> in a
            terminal
          </p>
        </Empty>
      ) : (
        <section aria-label="Sweeps">
          <Table
            label="Sweeps"
            rows={data.sweeps}
            columns={COLUMNS}
            id={(sweep) => data.sweeps.indexOf(sweep)}
            href={(sweep) => sweepHref(sweep.name)}
          />
        </section>
      )}
    </>
  );
}
