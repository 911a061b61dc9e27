// One sweep: how far it is, what is best, and how parameters and results hang together.
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { sweepAct } from '../actions';
import { ApiError, get, query } from '../api';
import { count, duration, metricOf, plural, value } from '../format';
import { Badge, Command, Empty, Failed, Loading, Progress, Section } from '../parts/bits';
import { Chart, type Line } from '../parts/chart';
import { ask } from '../parts/dialog';
import { Parallel, type Range } from '../parts/parallel';
import { type Column, Table } from '../parts/table';
import { href, jobHref, replace, route, sweepHref } from '../route';
import { isReadOnly, sweeps } from '../store';
import type { Delta, Point, State, SweepDetail } from '../types';
import { useChanges, useFetch } from '../use-fetch';

type Row = Record<string, unknown>;

interface Results {
  columns: string[];
  rows: Row[];
  total: number;
}

interface Curves {
  metric: string | null;
  curves: { trial: number; job: number; params: Record<string, unknown>; points: Point[] }[];
}

const PAGE = 500;

export function SweepScreen({ name }: { name: string }) {
  const base = `/api/sweeps/${encodeURIComponent(name)}`;
  const concerns = (delta: Delta) =>
    (delta.sweeps ?? []).some((one) => one.name === name) || (delta.jobs ?? []).some((job) => job.sweep === name)
    || !sweeps.peek().some((one) => one.name === name); // the stream tells of the newest only
  const { data: sweep, error, reload } = useFetch<SweepDetail>(base);
  useChanges(concerns, reload, 1500);
  if (!sweep) return error ? <Failed error={error} retry={reload} /> : <Loading rows={12} />;
  return (
    <>
      <SweepHead sweep={sweep} />
      {sweep.stopped && <div class="note" role="note">Stopped: {sweep.stopped}</div>}
      <SweepResults sweep={sweep} base={base} concerns={concerns} />
    </>
  );
}

function SweepHead({ sweep }: { sweep: SweepDetail }) {
  const { name, trials, total } = sweep;
  const metric = metricOf(sweep);
  const open = (trials.queued ?? 0) + (trials.held ?? 0) + (trials.running ?? 0) + (trials.starting ?? 0);
  const bad = (trials.failed ?? 0) + (trials.lost ?? 0) + (trials.cancelled ?? 0);
  const canExtend = !['grid', 'shuffled'].includes(sweep.method);

  const stop = async () => {
    const answer = await ask({
      title: `Stop sweep ${name}?`,
      body: `No more of its trials start; ${plural((trials.queued ?? 0) + (trials.held ?? 0), 'waiting trial')} will be cancelled. You can resume later.`,
      yes: 'Stop sweep',
      isDanger: true,
      box: { label: `End the ${plural(trials.running ?? 0, 'running trial')} too`, value: false },
    });
    if (answer) await sweepAct(name, 'stop', { kill: answer.box }, `Sweep ${name} stopped`, 'resume');
  };
  const extend = async () => {
    const answer = await ask({ title: `Extend ${name}`, yes: 'Extend', field: { label: 'More trials', type: 'number', value: '20' } });
    if (answer) await sweepAct(name, 'extend', { trials: Number(answer.value) }, `${plural(Number(answer.value), 'more trial')} for ${name}`);
  };

  return (
    <header class="page-head">
      <div class="grow">
        <p class="crumbs dim"><a href="#/sweeps">Sweeps</a> / {name}</p>
        <h1>{name}</h1>
        <p><Command text={sweep.command} /></p>
        <p class="headline">
          <span class={`sweep-${sweep.state}`}>{sweep.state}</span>
          <span class="dim">{sweep.method}</span>
          <Progress trials={trials} total={total} />
          <span class="num">{count(trials.done ?? 0)} of {count(total)} done</span>
          {(trials.running ?? 0) > 0 && <span class="num dim">{count(trials.running ?? 0)} running</span>}
          {bad > 0 && <span class="num bad-ink">{count(bad)} failed or cancelled</span>}
        </p>
        {sweep.best && metric && (
          <p class="best">
            Best so far <b class="num">{metric.name} = {value(sweep.best.value)}</b>
            <span class="dim"> trial {sweep.best.trial}: {Object.entries(sweep.best.params).map(([k, v]) => `${k}=${value(v)}`).join(', ')}</span>
          </p>
        )}
      </div>
      {!isReadOnly.value && (
        <div class="row actions">
          {sweep.state === 'stopped' || (!open && bad > 0)
            ? <button onClick={() => void sweepAct(name, 'resume', {}, `Sweep ${name} goes on`)}>Resume</button>
            : null}
          {bad > 0 && <button onClick={() => void sweepAct(name, 'rerun_failed', {}, `Failed trials of ${name} queued again`)}>Run failed again</button>}
          {canExtend && <button onClick={() => void extend()}>Extend…</button>}
          {open > 0 && sweep.state !== 'stopped' && <button class="danger" onClick={() => void stop()}>Stop…</button>}
        </div>
      )}
    </header>
  );
}

function SweepResults({ sweep, base, concerns }: { sweep: SweepDetail; base: string; concerns(delta: Delta): boolean }) {
  const metric = metricOf(sweep);
  const fallback = metric ? (metric.goal === 'max' ? `-${metric.name}` : metric.name) : 'trial';
  const sort = route.value.query.get('sort') ?? fallback;
  const [table, setTable] = useState<Results | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [ranges, setRanges] = useState<Record<string, Range>>({});
  const size = useRef(PAGE);
  const isBusy = useRef(false);

  const load = useCallback(async () => {
    isBusy.current = true;
    try {
      const pages: Results[] = [];
      for (let offset = 0; offset < size.current; offset += PAGE) {
        const page = await get<Results>(`${base}/results${query({ sort: sort === 'trial' ? null : sort, limit: PAGE, offset })}`);
        pages.push(page);
        if (page.rows.length < PAGE) break;
      }
      setTable({ ...pages[0]!, rows: pages.flatMap((page) => page.rows) });
      setError(null);
    } catch (problem) {
      if (problem instanceof ApiError) setError(problem);
    } finally {
      isBusy.current = false;
    }
  }, [base, sort]);
  useEffect(() => void load(), [load]);
  useChanges(concerns, () => void load(), 2500);
  const onEnd = useCallback(() => {
    if (table && table.rows.length < table.total && !isBusy.current) {
      size.current = table.rows.length + PAGE;
      void load();
    }
  }, [table, load]);

  if (!table) return error ? <Failed error={error} retry={() => void load()} /> : <Loading rows={10} />;
  const params = sweep.params.map((one) => one.name).filter((name) => table.columns.includes(name));
  const moving = params.filter((name) => new Set(table.rows.map((row) => value(row[name]))).size > 1);
  const others = table.columns.filter((name) => !params.includes(name) && !['trial', 'state', 'seconds', 'job'].includes(name));
  const target = metric && table.columns.includes(metric.name) ? metric.name : others[0] ?? null;
  const brushed = Object.entries(ranges);
  const rows = brushed.length ? table.rows.filter((row) => brushed.every(([, range]) => range.has(row))) : table.rows;

  const onSort = (name: string) => {
    const next = sort === name ? `-${name}` : name;
    replace(href(['sweeps', sweep.name], { sort: next }));
  };
  return (
    <>
      {table.rows.length > 0 && target !== null && (
        <div class="halves">
          <Section title="Parameters" note={brushed.length ? `${count(rows.length)} of ${count(table.rows.length)} trials` : undefined}
            tools={brushed.length ? <button class="link" onClick={() => setRanges({})}>Clear</button> : <span class="dim hint">drag along an axis to filter</span>}>
            <Parallel rows={table.rows} axes={[...(moving.length ? moving : params), target]} metric={target} goal={metric?.goal ?? 'min'} ranges={ranges} onRanges={setRanges} />
          </Section>
          <LearningCurves base={base} metric={target} isMax={metric?.goal === 'max'} concerns={concerns} />
        </div>
      )}
      <Section title="Trials" note={brushed.length ? `${count(rows.length)} of ${count(table.total)}` : count(table.total)}>
        {rows.length
          ? <Table label="Trials" rows={rows} columns={columnsFor(table.columns, params)} id={(row) => Number(row.trial)} sort={sort} onSort={onSort}
              href={(row) => (row.job == null ? sweepHref(sweep.name) : jobHref(Number(row.job)))} onEnd={onEnd} total={table.total} />
          : <Empty title={brushed.length ? 'No trial in these ranges' : 'No trials yet'} />}
      </Section>
    </>
  );
}

function columnsFor(names: string[], params: string[]): Column<Row>[] {
  return names.map((name): Column<Row> => {
    if (name === 'state') return { name, head: 'State', kind: 'p-end', width: 104, sort: true, cell: (row) => <Badge state={String(row.state) as State} /> };
    if (name === 'seconds') return { name, head: 'Time', kind: 'num p-meta', width: 76, sort: true, cell: (row) => (row.seconds == null ? '–' : duration(Number(row.seconds))) };
    if (name === 'job') return { name, head: 'Job', kind: 'num p-hide', width: 64, sort: true, cell: (row) => row.job != null && <a href={jobHref(Number(row.job))} tabIndex={-1}>{String(row.job)}</a> };
    if (name === 'trial') return { name, head: 'Trial', kind: 'num p-meta', width: 60, sort: true, cell: (row) => `#${row.trial}` };
    const isParam = params.includes(name);
    return {
      name, head: name, sort: true,
      kind: isParam ? 'num p-meta mono-cell' : 'num strong p-meta',
      cell: (row) => <span class="cut" title={value(row[name])}>{isParam && <span class="only-phone dim">{name}=</span>}{value(row[name])}</span>,
    };
  });
}

function LearningCurves({ base, metric, isMax, concerns }: { base: string; metric: string; isMax: boolean; concerns(delta: Delta): boolean }) {
  const { data, error, reload } = useFetch<Curves>(`${base}/curves${query({ metric, limit: 50, points: 200 })}`);
  useChanges(concerns, reload, 4000);
  const curves = (data?.curves ?? []).filter((one) => one.points.length > 1);
  // The worst is drawn first, the best on top; ranks, so that one bad trial does not make all others alike.
  const end = (one: (typeof curves)[number]) => one.points.findLast((point) => point[1] !== null)?.[1] ?? 0;
  curves.sort((a, b) => (isMax ? end(a) - end(b) : end(b) - end(a)));
  const lines: Line[] = curves.map((one, i) => ({ label: `#${one.trial}`, points: one.points, shade: curves.length > 1 ? 1 - i / (curves.length - 1) : 0 }));
  return (
    <Section title="Learning curves" note={lines.length ? `${metric}, ${plural(lines.length, 'trial')}` : undefined}>
      {error && !data ? <Failed error={error} retry={reload} />
        : !data ? <Loading rows={4} />
        : lines.length ? <Chart label={`${metric} of each trial over steps`} lines={lines} height={280} />
        : <Empty title="No curves yet">{`Trials that report ${metric} more than once show here.`}</Empty>}
    </Section>
  );
}
