// Several runs side by side: curves, parameters, metrics and provenance. The runs are in the address.
import { useMemo, useState } from 'preact/hooks';
import { CurveGrid } from '../curves/grid';
import { count, plural } from '../format';
import { Empty, Failed, Loading, Section, Tabs } from '../parts/bits';
import { FirstUse } from '../parts/first-use';
import { Heading } from '../parts/heading';
import { href, replace, route } from '../route';
import { select } from '../selection';
import { sweeps } from '../store';
import type { Compared, Delta } from '../types';
import { useChanges, useFetch } from '../use-fetch';
import { isDark } from '../theme';
import { visible } from '../words';
import { CodeOfTwo } from './compare-code';
import { CompareTable } from './compare-table';

export function CompareScreen() {
  const { query } = route.value;
  const words = [...new Set(query.getAll('runs').filter(Boolean))];
  const isAll = query.get('rows') === 'all';
  const path = words.length
    ? `/api/compare?${new URLSearchParams(words.map((word) => ['runs', word]))}`
    : null;
  const { data, error, reload } = useFetch<Compared>(path);
  const jobs = (data?.runs ?? []).map((run) => run.job).filter((job) => job !== null);
  const concerns = (delta: Delta) =>
    (delta.jobs ?? []).some((job) => jobs.includes(job.id)) ||
    (delta.sweeps ?? []).some((sweep) => words.includes(sweep.name));
  useChanges(concerns, reload, 3000);
  void isDark.value; // the colors of the columns
  const order = useMemo(() => (data?.runs ?? []).map((run) => run.run), [data]);

  const go = (runs: string[]) => {
    const next = new URLSearchParams([...route.peek().query].filter(([key]) => key !== 'runs'));
    for (const run of runs) next.append('runs', run);
    replace(href(['compare'], next));
    select(runs);
  };
  const setRows = (rows: string) => {
    const next = new URLSearchParams(route.peek().query);
    if (rows === 'all') next.set('rows', 'all');
    else next.delete('rows');
    replace(href(['compare'], next));
  };
  // A sweep stands for its trials: removing one of them leaves the others.
  const remove = (run: string) =>
    go((words.includes(run) ? words : order).filter((word) => word !== run));
  return (
    <>
      <header class="page-head slim">
        <Heading>Compare</Heading>
        <p class="headline num">
          {data && <span>{plural(data.runs.length, 'run')}</span>}
          {data && data.left_off > 0 && (
            <span class="dim">{count(data.left_off)} more are not shown</span>
          )}
        </p>
        <span class="grow" />
        <AddRun onAdd={(word) => go([...words, word])} />
      </header>
      {words.length > 0 && error && !data && (
        <Unknown words={words} error={error} retry={reload} onRemove={remove} />
      )}
      {!words.length ? (
        <Empty title="No runs to compare">
          <p>
            Select jobs, trials or sweeps in any table with their checkboxes or the key <kbd>x</kbd>
            , then choose Compare.
          </p>
          <p>
            <a href="#/history">History</a> · <a href="#/sweeps">Sweeps</a>
          </p>
          <FirstUse topic="compare" />
        </Empty>
      ) : !data ? (
        !error && <Loading rows={12} />
      ) : (
        <>
          {data.runs.length === 1 && (
            <p class="note" role="note">
              This is one run. Add another one by its id, or select rows in any table with the key{' '}
              <kbd>x</kbd>.
            </p>
          )}
          <CurveGrid
            runs={data.left_off ? order : words}
            grouped={words}
            remember={null}
            order={order}
            groups={data.params.filter((row) => row.differs).map((row) => row.name)}
            concerns={concerns}
          />
          <Section
            title="Side by side"
            tools={
              <Tabs
                label="Rows"
                value={isAll ? 'all' : 'differing'}
                options={[
                  { value: 'differing', label: 'Only what differs' },
                  { value: 'all', label: 'All' },
                ]}
                onPick={setRows}
              />
            }
          >
            <CompareTable data={data} isAll={isAll} onRemove={remove} />
          </Section>
          {data.runs.length === 2 && jobs.length === 2 && (
            <CodeOfTwo key={jobs.join()} jobs={[jobs[0]!, jobs[1]!]} />
          )}
        </>
      )}
    </>
  );
}

/** Some word of the address is not a run (any more): the others can still be compared. */
function Unknown({
  words,
  error,
  retry,
  onRemove,
}: {
  words: string[];
  error: unknown;
  retry(): void;
  onRemove(word: string): void;
}) {
  return (
    <>
      <Failed error={error} retry={retry} />
      <p class="row chips" role="group" aria-label="Runs of this comparison">
        {words.map((word) => (
          <button key={word} onClick={() => onRemove(word)} title="Remove from the comparison">
            {visible(word)} ×
          </button>
        ))}
      </p>
    </>
  );
}

function AddRun({ onAdd }: { onAdd(word: string): void }) {
  const [text, setText] = useState('');
  const onSubmit = (event: Event) => {
    event.preventDefault();
    if (text.trim()) onAdd(text.trim());
    setText('');
  };
  return (
    <form class="row add-run" onSubmit={onSubmit}>
      <input
        list="known-runs"
        placeholder="Job id, sweep, or SWEEP/TRIAL"
        aria-label="Add a run: the id of a job, the name of a sweep, or SWEEP/TRIAL"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <datalist id="known-runs">
        {sweeps.value.map((sweep) => (
          <option key={sweep.name} value={sweep.name} />
        ))}
      </datalist>
      <button>Add</button>
    </form>
  );
}
