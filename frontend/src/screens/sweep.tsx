// One sweep: progress, the best trial, charts of parameters and results, and the table of trials.
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, get, query } from '../api';
import { count, value } from '../format';
import { Command, Empty, Failed, Loading, Progress, Section } from '../parts/bits';
import { FailureGroups } from '../parts/failure-groups';
import { FilterBox } from '../parts/filter-box';
import { Heading } from '../parts/heading';
import { NoteBox } from '../parts/note';
import { ReportLinks } from '../parts/report-links';
import { Star } from '../parts/star';
import { SweepActions } from '../parts/sweep-actions';
import { TableTools } from '../parts/table-tools';
import { Tags } from '../parts/tags';
import { WideTable } from '../parts/wide-table';
import { jobHref, sweepHref } from '../route';
import { compareHref, trialRun, useSelecting } from '../selection';
import { isReadOnly, sweeps } from '../store';
import { setInAddress, tableState } from '../table-state';
import type { Delta, Results, SweepDetail } from '../types';
import { useChanges, useFetch } from '../use-fetch';
import { visible } from '../words';
import { useFailures } from './history-data';
import { columnsFor } from './sweep-columns';
import { SweepCurves } from './sweep-curves';
import { SweepParameters } from './sweep-parameters';

const PAGE = 500;
const ENDS = ['result', 'cause', 'exit']; // shown only where they are chosen
const FILTER_EXAMPLE = "state == 'done' and lr < 0.01";
const NO_TRIALS: Results = { schema: 2, columns: [], rows: [], total: 0, metric: null };

export function SweepScreen({ name }: { name: string }) {
  const base = `/api/sweeps/${encodeURIComponent(name)}`;
  const concerns = (delta: Delta) =>
    (delta.sweeps ?? []).some((one) => one.name === name) ||
    (delta.jobs ?? []).some((job) => job.sweep === name) ||
    !sweeps.peek().some((one) => one.name === name); // the stream reports only the newest sweeps
  const { data: sweep, error, reload } = useFetch<SweepDetail>(base);
  useChanges(concerns, reload, 1500);
  const [trials, setTrials] = useState<number[] | null>(null);
  if (!sweep && error) return <Failed error={error} retry={reload} />;
  return (
    <>
      {sweep ? <SweepHead sweep={sweep} reload={reload} /> : <Loading rows={4} />}
      {sweep && <NoteBox key={name} target={{ sweep: name }} value={sweep} onSaved={reload} />}
      {sweep?.stopped && (
        <div class="note" role="note">
          Stopped: {sweep.stopped}
        </div>
      )}
      {sweep && sweep.other_code.length > 0 && (
        <div class="note" role="note">
          {count(sweep.other_code.length)} of {count(sweep.total)} trials ran with other code than
          the newest one: see the column <code>code</code>.
        </div>
      )}
      <SweepCurves
        name={name}
        params={sweep?.params.map((one) => one.name) ?? []}
        trials={trials}
        concerns={concerns}
      />
      {sweep && (
        <SweepParameters sweep={sweep} base={base} concerns={concerns} onFilter={setTrials} />
      )}
      {sweep && <SweepResults sweep={sweep} base={base} concerns={concerns} />}
    </>
  );
}

function SweepHead({ sweep, reload }: { sweep: SweepDetail; reload: () => void }) {
  const { name, trials, total } = sweep;
  const { metric } = sweep;
  const failed = (trials.failed ?? 0) + (trials.lost ?? 0);

  return (
    <header class="page-head">
      <div class="grow">
        <p class="crumbs dim">
          <a href="#/sweeps">Sweeps</a> / <span aria-current="page">{visible(name)}</span>
        </p>
        <div class="title-row">
          <Heading>{visible(name)}</Heading>
          <Star target={{ sweep: name }} isStarred={sweep.starred} onChanged={reload} />
        </div>
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
          <Tags target={{ sweep: name }} tags={sweep.tags} onChanged={reload} />
        </p>
        {sweep.best && metric && (
          <p class="best">
            Best so far ({metric.goal}){' '}
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
      <div class="row actions">
        <a class="button" href={compareHref([name])} title="Compare the best trials">
          Compare
        </a>
        <ReportLinks name={name} />
      </div>
      {!isReadOnly.value && <SweepActions sweep={sweep} />}
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
  const tableName = `sweep-${sweep.name}`;
  const { where, sort: ownSort, columns: chosen } = tableState(tableName);
  const sort = ownSort || fallback;
  const selection = new URLSearchParams(
    Object.entries({ where, sort: sort === 'trial' ? '' : sort }).filter(([, text]) => text),
  );
  const asked = `${selection}${(chosen ?? []).map((name) => `&column=${encodeURIComponent(name)}`).join('')}`;
  const [loaded, setTable] = useState<Results | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const size = useRef(PAGE);
  const isBusy = useRef(false);

  const latest = useRef(asked);
  latest.current = asked;
  const load = useCallback(async () => {
    isBusy.current = true;
    try {
      const pages: Results[] = [];
      for (let offset = 0; offset < size.current; offset += PAGE) {
        const page = await get<Results>(
          `${base}/results${query({ limit: PAGE, offset })}${asked && `&${asked}`}`,
        );
        if (latest.current !== asked) return;
        pages.push(page);
        if (page.rows.length < PAGE) break;
      }
      setTable({ ...pages[0]!, rows: pages.flatMap((page) => page.rows) });
      setError(null);
    } catch (problem) {
      if (problem instanceof ApiError && latest.current === asked) setError(problem);
    } finally {
      isBusy.current = false;
    }
  }, [base, asked]);
  useEffect(() => void load(), [load]);
  useChanges(concerns, () => void load(), 2500);
  const onEnd = useCallback(() => {
    if (loaded && loaded.rows.length < loaded.total && !isBusy.current) {
      size.current = loaded.rows.length + PAGE;
      void load();
    }
  }, [loaded, load]);

  const rows = loaded?.rows ?? [];
  const selecting = useSelecting(
    rows,
    (row) => Number(row.trial),
    (row) => trialRun(sweep.name, Number(row.trial)),
  );

  const groups = useFailures(`${base}/failures`, selection);
  const filterError = error?.status === 400 ? error : null;
  const setWhere = (text: string) => setInAddress({ where: text });

  if (!loaded && !filterError)
    return error ? <Failed error={error} retry={() => void load()} /> : <Loading rows={10} />;
  const table = loaded ?? NO_TRIALS;
  const standard = table.columns.filter((name) => !ENDS.includes(name));
  const known = chosen?.filter((name) => table.columns.includes(name)) ?? [];
  const names = known.length ? known : standard;
  const params = sweep.params.map((one) => one.name).filter((name) => table.columns.includes(name));
  const others = table.columns.filter(
    (name) => !params.includes(name) && !['trial', 'state', 'seconds', 'job'].includes(name),
  );
  const target = metric && table.columns.includes(metric.name) ? metric.name : (others[0] ?? null);
  const onSort = (name: string) => setInAddress({ sort: sort === name ? `-${name}` : name });
  return (
    <Section
      title="Trials"
      note={where ? `${count(table.total)} of ${count(sweep.total)}` : count(table.total)}
    >
      <div class="table-bar">
        <FilterBox
          base={base}
          where={where}
          placeholder={FILTER_EXAMPLE}
          error={filterError}
          onWhere={setWhere}
        />
        <TableTools
          base={base}
          table={tableName}
          columns={names}
          standard={standard}
          sort={sort}
          selection={selection}
        />
      </div>
      <FailureGroups groups={groups} where={where} onWhere={setWhere} />
      {rows.length ? (
        <WideTable
          label="Trials"
          {...selecting}
          rows={rows}
          columns={columnsFor(names, params, target, rows)}
          id={(row) => Number(row.trial)}
          sort={sort}
          onSort={onSort}
          href={(row) => (row.job == null ? sweepHref(sweep.name) : jobHref(Number(row.job)))}
          onEnd={onEnd}
          total={table.total}
        />
      ) : (
        loaded && <Empty title={where ? 'No trials match the filter' : 'No trials yet'} />
      )}
    </Section>
  );
}
