// All sweeps, newest first.
import { count, value } from '../format';
import { Empty, Failed, Loading, Progress } from '../parts/bits';
import { FirstUse } from '../parts/first-use';
import { Heading } from '../parts/heading';
import { NoteMark, Star } from '../parts/star';
import { type Column, Table } from '../parts/table';
import { href, route, sweepHref } from '../route';
import { useSelecting } from '../selection';
import { isReadOnly } from '../store';
import type { SweepSummary } from '../types';
import { visible } from '../words';
import { useChanges, useFetch } from '../use-fetch';

const COLUMNS: Column<SweepSummary>[] = [
  {
    name: 'name',
    head: 'Sweep',
    kind: 'p-title',
    width: 240,
    cell: (sweep) => (
      <span class="title">
        <Star target={{ sweep: sweep.name }} isStarred={sweep.starred} isInTable />
        <NoteMark line={sweep.note_line} />
        <a class="cut" href={sweepHref(sweep.name)} tabIndex={-1}>
          <b>{visible(sweep.name)}</b>
        </a>
        {sweep.tags.map((tag) => (
          <span class="tag" key={tag}>
            {visible(tag)}
          </span>
        ))}
      </span>
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

/** The sweeps with the tag and star of the address. */
function filtered(all: SweepSummary[]): SweepSummary[] {
  const tag = route.value.query.get('tag');
  const isStarred = route.value.query.has('starred');
  return all.filter((one) => (!tag || one.tags.includes(tag)) && (!isStarred || one.starred));
}

/** What the address filters by, as links that add or remove it. */
function SweepFilters({ all }: { all: SweepSummary[] }) {
  const { query } = route.value;
  const tag = query.get('tag');
  const isStarred = query.has('starred');
  const tags = [...new Set([...all.flatMap((one) => one.tags), ...(tag ? [tag] : [])])].sort();
  if (!tags.length && !isStarred && !all.some((one) => one.starred)) return null;
  const link = (next: { tag?: string | null; starred?: boolean }) => {
    const to = { tag, starred: isStarred, ...next };
    return href(['sweeps'], {
      ...(to.tag ? { tag: to.tag } : {}),
      ...(to.starred ? { starred: 'true' } : {}),
    });
  };
  return (
    <p class="tags" role="group" aria-label="Filter sweeps">
      <a
        class="tag"
        aria-current={isStarred ? 'true' : undefined}
        href={link({ starred: !isStarred })}
      >
        starred
      </a>
      {tags.map((one) => (
        <a
          key={one}
          class="tag"
          aria-current={one === tag ? 'true' : undefined}
          href={link({ tag: one === tag ? null : one })}
        >
          {visible(one)}
        </a>
      ))}
    </p>
  );
}

export function SweepsScreen() {
  const { data, error, reload } = useFetch<{ sweeps: SweepSummary[] }>('/api/sweeps');
  useChanges((delta) => Boolean(delta.sweeps?.length || delta.removed_sweeps?.length), reload);
  const all = data?.sweeps ?? [];
  const shown = filtered(all);
  const selecting = useSelecting(
    shown,
    (sweep) => all.indexOf(sweep),
    (sweep) => sweep.name,
  );
  return (
    <>
      <header class="page-head">
        <div class="grow">
          <Heading>Sweeps</Heading>
          {data && <SweepFilters all={data.sweeps} />}
        </div>
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
          <FirstUse topic="sweeps">
            <p>{isReadOnly.value ? '' : 'or in a terminal:'}</p>
          </FirstUse>
        </Empty>
      ) : (
        <section aria-label="Sweeps">
          <Table
            label="Sweeps"
            {...selecting}
            rows={shown}
            columns={COLUMNS}
            id={(sweep) => all.indexOf(sweep)}
            href={(sweep) => sweepHref(sweep.name)}
          />
        </section>
      )}
    </>
  );
}
