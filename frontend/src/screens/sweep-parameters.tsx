// The parameters of a sweep against its results: a parallel-coordinates chart whose brushes are part of
// the filter in the address, and the importance of the parameters.
import { useEffect, useMemo } from 'preact/hooks';
import { query } from '../api';
import { count, value } from '../format';
import { AxisControls } from '../parts/axis-controls';
import { Failed, Section } from '../parts/bits';
import { Importance } from '../parts/importance';
import { Parallel } from '../parts/parallel';
import {
  type Brushes,
  axisOf,
  filterOf,
  isSelected,
  joinFilter,
  splitFilter,
} from '../parts/parallel-axes';
import { ranksOf } from '../parts/ranks';
import { notify } from '../parts/toast';
import { href, replace, route } from '../route';
import { isDark } from '../theme';
import type { Delta, Results, SweepDetail } from '../types';
import { useChanges, useFetch } from '../use-fetch';
import { visible } from '../words';

const MOST_TRIALS = 5000; // that the chart draws
const BAD = ['failed', 'lost', 'cancelled'];
const NEVER_AXES = ['trial', 'state', 'job', 'result', 'cause', 'exit'];

/** Change parts of the address; an empty text removes one. */
function setAddress(changes: Record<string, string>): void {
  const { path, query: old } = route.peek();
  const next = new URLSearchParams(old);
  for (const [name, text] of Object.entries(changes))
    if (text) next.set(name, text);
    else next.delete(name);
  replace(href(path, next));
}

export function SweepParameters({
  sweep,
  base,
  concerns,
  onFilter,
}: {
  sweep: SweepDetail;
  base: string;
  concerns(delta: Delta): boolean;
  /** Called with the trials that the filter leaves; null: no filter. */
  onFilter(trials: number[] | null): void;
}) {
  const address = route.value.query;
  const where = address.get('where') ?? '';
  const { rest, brushes } = useMemo(() => splitFilter(where), [where]);
  const { metric } = sweep;
  const order = metric ? (metric.goal === 'max' ? `-${metric.name}` : metric.name) : null;
  const isLarge = sweep.total > MOST_TRIALS;
  const { data, error, reload } = useFetch<Results>(
    `${base}/results${query({ limit: MOST_TRIALS, where: rest || null, sort: isLarge ? order : null })}`,
  );
  useChanges(concerns, reload, 4000);
  const rows = data?.rows;

  const selected = useMemo(() => rows?.filter((row) => isSelected(row, brushes)), [rows, brushes]);
  const isFiltered = where.trim() !== '';
  useEffect(() => {
    if (selected) onFilter(isFiltered ? selected.map((row) => Number(row.trial)) : null);
  }, [selected, isFiltered]);

  const known = useMemo(() => namesOf(sweep, data), [sweep.params, data]);
  const isNumber = (name: string) => rows?.some((row) => typeof row[name] === 'number');
  const target = metric && known.metrics.includes(metric.name) ? metric.name : known.metrics[0];
  const inAddress = address.getAll('axis').filter((name) => known.all.includes(name));
  const names = inAddress.length > 1 ? inAddress : [...known.varied, ...(target ? [target] : [])];
  const key = names.join('\n');
  const axes = useMemo(() => names.map((name) => axisOf(name, rows ?? [])), [key, rows]);
  const askedColor = address.get('color');
  const colored = askedColor && known.metrics.includes(askedColor) ? askedColor : target;
  const isMax = colored === metric?.name && metric?.goal === 'max';
  const ranks = useMemo(
    () =>
      ranksOf(
        (rows ?? [])
          .filter(
            (row) =>
              colored && typeof row[colored] === 'number' && !BAD.includes(String(row.state)),
          )
          .map((row) => ({ trial: Number(row.trial), value: Number(row[colored!]) })),
        isMax,
      ),
    [rows, colored, isMax],
  );

  if (!data) return error && error.status !== 400 ? <Failed error={error} retry={reload} /> : null;
  if (!rows?.length || !target || !selected) return null;
  const setBrushes = (next: Brushes) => setAddress({ where: joinFilter(rest, next) });
  const setAxes = (next: string[]) => {
    const changed = new URLSearchParams(route.peek().query);
    changed.delete('axis');
    for (const name of next) changed.append('axis', name);
    replace(href(route.peek().path, changed));
  };
  const filter = filterOf(brushes);
  const copy = () =>
    navigator.clipboard.writeText(`--where '${filter.replaceAll("'", `'"'"'`)}'`).then(
      () => notify('Filter copied'),
      () => notify('The browser does not allow copying'),
    );
  const better = isDark.value ? 'brighter' : 'darker';
  return (
    <Section
      title="Parameters"
      note={
        filter
          ? `${count(selected.length)} of ${count(rows.length)} trials`
          : data.total > rows.length
            ? `${count(rows.length)} of ${count(data.total)} trials`
            : undefined
      }
      tools={
        <span class="row parallel-tools">
          {known.metrics.filter(isNumber).length > 1 && (
            <label class="dim">
              Color{' '}
              <select
                value={colored}
                onChange={(event) =>
                  setAddress({
                    color: event.currentTarget.value === target ? '' : event.currentTarget.value,
                  })
                }
              >
                {known.metrics.filter(isNumber).map((name) => (
                  <option key={name} value={name}>
                    {visible(name)}
                  </option>
                ))}
              </select>
            </label>
          )}
          {filter ? (
            <button class="link" onClick={() => setBrushes({})}>
              Clear
            </button>
          ) : (
            <span class="dim hint wide-only">drag along an axis to filter</span>
          )}
        </span>
      }
    >
      <Parallel
        rows={rows}
        axes={axes}
        ranks={ranks}
        brushes={brushes}
        onBrushes={setBrushes}
        legend={`color: rank by ${visible(colored ?? '')}, ${isMax ? 'larger' : 'smaller'} is ${colored === metric?.name ? 'better and ' : ''}${better}; dashed: failed, or no result yet`}
      />
      {filter && (
        <p class="parallel-filter">
          <code class="cut" title={visible(filter)}>
            --where '{visible(filter)}'
          </code>
          <button class="link" onClick={() => void copy()}>
            Copy
          </button>
        </p>
      )}
      <details class="axes-box">
        <summary>Axes and ranges</summary>
        <AxisControls
          axes={axes}
          hidden={known.all.filter((name) => !names.includes(name))}
          brushes={brushes}
          onBrushes={setBrushes}
          onAxes={setAxes}
        />
      </details>
      <Importance
        base={base}
        metric={target}
        isEnabled={known.varied.length > 1}
        concerns={concerns}
      />
    </Section>
  );
}

/** The columns that can be axes: parameters, those of them that vary, metrics, and all. */
function namesOf(sweep: SweepDetail, data: Results | null) {
  const columns = data?.columns ?? [];
  const rows = data?.rows ?? [];
  const params = sweep.params.map((one) => one.name).filter((name) => columns.includes(name));
  const varied = params.filter((name) => {
    const first = value(rows[0]?.[name]);
    return rows.some((row) => value(row[name]) !== first);
  });
  const metrics = columns.filter(
    (name) => !params.includes(name) && name !== 'seconds' && !NEVER_AXES.includes(name),
  );
  const others = columns.includes('seconds') ? ['seconds'] : [];
  return {
    varied: varied.length ? varied : params,
    metrics,
    all: [...params, ...metrics, ...others],
  };
}
