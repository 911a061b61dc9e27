// The columns of the trials table.
import { duration, value } from '../format';
import { Badge } from '../parts/bits';
import type { Column } from '../parts/table';
import { jobHref } from '../route';
import type { State } from '../types';
import { visible } from '../words';

export type Row = Record<string, unknown>;

const FIXED: Record<string, number> = { trial: 60, state: 104, seconds: 76, job: 64 };

/** Columns as wide as their longest value if all fit; the remaining width goes to an empty last column. */
export function columnsFor(
  names: string[],
  params: string[],
  target: string | null,
  rows: Row[],
): Column<Row>[] {
  const wanted = new Map(
    names.map((name) => [
      name,
      26 +
        7.5 *
          Math.max(
            ...[name, ...rows.slice(0, 100).map((row) => value(row[name]))].map(
              (text) => text.length,
            ),
          ),
    ]),
  );
  const others = names.filter((name) => !(name in FIXED));
  const available =
    Math.min(innerWidth, 1560) - 60 - names.reduce((sum, name) => sum + (FIXED[name] ?? 0), 0);
  const doAllFit = others.reduce((sum, name) => sum + wanted.get(name)!, 0) < available;
  const columns = namedColumns(names, params, target, (name) =>
    doAllFit ? wanted.get(name)! : 'auto',
  );
  return doAllFit
    ? [...columns, { name: '', head: '', kind: 'p-hide', width: 'auto', cell: () => null }]
    : columns;
}

function namedColumns(
  names: string[],
  params: string[],
  target: string | null,
  widthOf: (name: string) => number | string,
): Column<Row>[] {
  return names.map((name): Column<Row> => {
    if (name === 'state')
      return {
        name,
        head: 'State',
        kind: 'p-end',
        width: FIXED.state,
        sort: true,
        cell: (row) => <Badge state={String(row.state) as State} />,
      };
    if (name === 'seconds')
      return {
        name,
        head: 'Time',
        kind: 'num p-meta',
        width: FIXED.seconds,
        sort: true,
        cell: (row) => (row.seconds == null ? '–' : duration(Number(row.seconds))),
      };
    if (name === 'job')
      return {
        name,
        head: 'Job',
        kind: 'num p-hide',
        width: FIXED.job,
        sort: true,
        cell: (row) =>
          row.job != null && (
            <a href={jobHref(Number(row.job))} tabIndex={-1}>
              {String(row.job)}
            </a>
          ),
      };
    if (name === 'trial')
      return {
        name,
        head: 'Trial',
        kind: 'num p-meta',
        width: FIXED.trial,
        sort: true,
        cell: (row) => `#${row.trial}`,
      };
    const kind = params.includes(name)
      ? 'num p-meta mono-cell'
      : name === target
        ? 'num strong p-meta'
        : 'num p-meta';
    return {
      name,
      head: visible(name),
      sort: true,
      kind,
      width: widthOf(name),
      cell: (row) =>
        row[name] != null && (
          <span class="cut" title={value(row[name])}>
            <span class="only-phone dim">{visible(name)}=</span>
            {value(row[name])}
          </span>
        ),
    };
  });
}
