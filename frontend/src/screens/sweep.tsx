// One sweep: progress, the best trial, charts of parameters and results, and the table of trials.
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { extendSweep, rerunFailed, resumeSweep, stopSweep } from '../actions';
import { ApiError, get, query } from '../api';
import { count, plural, value } from '../format';
import { Command, Empty, Failed, Loading, Progress, Section } from '../parts/bits';
import { ask } from '../parts/dialog';
import { Heading } from '../parts/heading';
import { Parallel, type Range } from '../parts/parallel';
import { ranksOf } from '../parts/ranks';
import { Table } from '../parts/table';
import { href, jobHref, replace, route, sweepHref } from '../route';
import { isReadOnly, sweeps } from '../store';
import type { Delta, Results, SweepDetail } from '../types';
import { useChanges, useFetch } from '../use-fetch';
import { visible } from '../words';
import { Importance, LearningCurves } from './sweep-charts';
import { columnsFor } from './sweep-columns';

const PAGE = 500;
const BAD = ['failed', 'lost', 'cancelled'];

export function SweepScreen({ name }: { name: string }) {
  const base = `/api/sweeps/${encodeURIComponent(name)}`;
  const concerns = (delta: Delta) =>
    (delta.sweeps ?? []).some((one) => one.name === name) ||
    (delta.jobs ?? []).some((job) => job.sweep === name) ||
    !sweeps.peek().some((one) => one.name === name); // the stream reports only the newest sweeps
  const { data: sweep, error, reload } = useFetch<SweepDetail>(base);
  useChanges(concerns, reload, 1500);
  if (!sweep) return error ? <Failed error={error} retry={reload} /> : <Loading rows={12} />;
  return (
    <>
      <SweepHead sweep={sweep} />
      {sweep.stopped && (
        <div class="note" role="note">
          Stopped: {sweep.stopped}
        </div>
      )}
      <SweepResults sweep={sweep} base={base} concerns={concerns} />
    </>
  );
}

function SweepHead({ sweep }: { sweep: SweepDetail }) {
  const { name, trials, total } = sweep;
  const { metric } = sweep;
  const open =
    (trials.queued ?? 0) + (trials.held ?? 0) + (trials.running ?? 0) + (trials.starting ?? 0);
  const failed = (trials.failed ?? 0) + (trials.lost ?? 0);
  const isStopped = sweep.state === 'stopped';
  const canExtend = !['grid', 'shuffled'].includes(sweep.method);

  const stop = async () => {
    const answer = await ask({
      title: `Stop sweep ${name}?`,
      body: `${plural((trials.queued ?? 0) + (trials.held ?? 0), 'waiting trial')} will be canceled, and no new trials start. You can resume the sweep later.`,
      yes: 'Stop sweep',
      isDanger: true,
      box: { label: `Also cancel ${plural(trials.running ?? 0, 'running trial')}`, value: false },
    });
    if (answer) await stopSweep(name, answer.box);
  };
  const extend = () =>
    ask({
      title: `Extend ${name}`,
      yes: 'Extend',
      field: { label: 'More trials', type: 'number', value: '20' },
      run: ({ value: trials }) => extendSweep(name, Number(trials)),
    });

  return (
    <header class="page-head">
      <div class="grow">
        <p class="crumbs dim">
          <a href="#/sweeps">Sweeps</a> / <span aria-current="page">{visible(name)}</span>
        </p>
        <Heading>{visible(name)}</Heading>
        <p>
          <Command text={sweep.command} />
        </p>
        <p class="headline">
          <span class={`sweep-${sweep.state}`}>{sweep.state}</span>
          <span class="dim">{sweep.method}</span>
          <Progress trials={trials} total={total} />
          <span class="num">
            {count(trials.done ?? 0)} of {count(total)} done
          </span>
          {(trials.running ?? 0) > 0 && (
            <span class="num dim">{count(trials.running ?? 0)} running</span>
          )}
          {failed > 0 && <span class="num bad-ink">{count(failed)} failed</span>}
          {(trials.cancelled ?? 0) > 0 && (
            <span class="num dim">{count(trials.cancelled ?? 0)} cancelled</span>
          )}
        </p>
        {sweep.best && metric && (
          <p class="best">
            Best so far{' '}
            <b class="num">
              {metric.name} = {value(sweep.best.value)}
            </b>
            <span class="dim">
              {' '}
              trial {sweep.best.trial}:{' '}
              {Object.entries(sweep.best.params)
                .map(([k, v]) => `${visible(k)}=${value(v)}`)
                .join(', ')}
            </span>
          </p>
        )}
      </div>
      {!isReadOnly.value && (
        <div class="row actions">
          {/* Only actions that have an effect: resuming runs trials that were cancelled or never started. */}
          {isStopped && <button onClick={() => void resumeSweep(name)}>Resume</button>}
          {!isStopped && sweep.missing > 0 && (
            <button onClick={() => void resumeSweep(name)}>
              Run {plural(sweep.missing, 'missing trial')}
            </button>
          )}
          {failed > 0 && <button onClick={() => void rerunFailed(name)}>Rerun failed</button>}
          {canExtend && <button onClick={() => void extend()}>Extend…</button>}
          {open > 0 && !isStopped && (
            <button class="danger" onClick={() => void stop()}>
              Stop…
            </button>
          )}
        </div>
      )}
    </header>
  );
}

function SweepResults({
  sweep,
  base,
  concerns,
}: {
  sweep: SweepDetail;
  base: string;
  concerns(delta: Delta): boolean;
}) {
  const { metric } = sweep;
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
        const page = await get<Results>(
          `${base}/results${query({ sort: sort === 'trial' ? null : sort, limit: PAGE, offset })}`,
        );
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

  if (!table)
    return error ? <Failed error={error} retry={() => void load()} /> : <Loading rows={10} />;
  const params = sweep.params.map((one) => one.name).filter((name) => table.columns.includes(name));
  const varied = params.filter(
    (name) => new Set(table.rows.map((row) => value(row[name]))).size > 1,
  );
  const others = table.columns.filter(
    (name) => !params.includes(name) && !['trial', 'state', 'seconds', 'job'].includes(name),
  );
  const target = metric && table.columns.includes(metric.name) ? metric.name : (others[0] ?? null);
  const ranks = ranksOf(
    target === null
      ? []
      : table.rows
          .filter((row) => typeof row[target] === 'number' && !BAD.includes(String(row.state)))
          .map((row) => ({ trial: Number(row.trial), value: Number(row[target]) })),
    metric?.goal === 'max',
  );
  const activeRanges = Object.entries(ranges);
  const rows = activeRanges.length
    ? table.rows.filter((row) => activeRanges.every(([, range]) => range.has(row)))
    : table.rows;

  const onSort = (name: string) => {
    const next = sort === name ? `-${name}` : name;
    replace(href(['sweeps', sweep.name], { sort: next }));
  };
  return (
    <>
      {table.rows.length > 0 && target !== null && (
        <div class="halves">
          <Section
            title="Parameters"
            note={
              activeRanges.length
                ? `${count(rows.length)} of ${count(table.rows.length)} trials`
                : undefined
            }
            tools={
              activeRanges.length ? (
                <button class="link" onClick={() => setRanges({})}>
                  Clear
                </button>
              ) : (
                <span class="dim hint">drag along an axis to filter</span>
              )
            }
          >
            <Parallel
              rows={table.rows}
              axes={[...(varied.length ? varied : params), target]}
              metric={target}
              goal={metric?.goal ?? 'min'}
              ranks={ranks}
              ranges={ranges}
              onRanges={setRanges}
            />
            <Importance
              base={base}
              metric={target}
              isEnabled={varied.length > 1}
              concerns={concerns}
            />
          </Section>
          <LearningCurves
            base={base}
            metric={target}
            ranks={ranks}
            trials={activeRanges.length ? new Set(rows.map((row) => Number(row.trial))) : null}
            concerns={concerns}
          />
        </div>
      )}
      <Section
        title="Trials"
        note={
          activeRanges.length
            ? `${count(rows.length)} of ${count(table.total)}`
            : count(table.total)
        }
      >
        {rows.length ? (
          <Table
            label="Trials"
            rows={rows}
            columns={columnsFor(table.columns, params, target, rows)}
            id={(row) => Number(row.trial)}
            sort={sort}
            onSort={onSort}
            href={(row) => (row.job == null ? sweepHref(sweep.name) : jobHref(Number(row.job)))}
            onEnd={onEnd}
            total={table.total}
          />
        ) : (
          <Empty
            title={activeRanges.length ? 'No trials in the selected ranges' : 'No trials yet'}
          />
        )}
      </Section>
    </>
  );
}
