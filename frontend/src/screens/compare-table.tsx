// The table of a comparison: one column per run, and rows of parameters, metrics and provenance.
import type { ComponentChildren } from 'preact';
import { distinctColor } from '../curves/colors';
import { shortName } from '../curves/lines';
import { bytes, clock, duration, value } from '../format';
import { Badge } from '../parts/bits';
import { jobHref, sweepHref } from '../route';
import type { Compared, ComparedRow } from '../types';
import { visible } from '../words';

const LABELS: Record<string, string> = {
  commit: 'Commit',
  branch: 'Branch',
  dirty: 'Local changes',
  diff_bytes: 'Size of the changes',
  gpus: 'GPUs',
  uv: 'uv',
  python: 'Python',
  host: 'Host',
  gpu: 'GPU',
  driver: 'Driver',
  cuda: 'CUDA',
  stoker: 'Stoker',
};

export function CompareTable({
  data,
  isAll,
  onRemove,
}: {
  data: Compared;
  /** Also show rows whose values are equal. */
  isAll: boolean;
  onRemove?(run: string): void;
}) {
  const { runs } = data;
  const shown = (rows: ComparedRow[]) => rows.filter((row) => isAll || row.differs);
  return (
    <div class="compare-scroll" tabIndex={0} role="region" aria-label="Compared runs">
      <table class="compare">
        <thead>
          <tr>
            <th scope="col">
              <span class="visually-hidden">Row</span>
            </th>
            {runs.map((run, i) => (
              <th key={run.run} scope="col">
                <span class="run-head">
                  <i style={{ background: distinctColor(i) }} />
                  {run.job === null ? (
                    <a class="cut" href={sweepHref(run.sweep ?? '')} title={visible(run.label)}>
                      {visible(shortName(run))}
                    </a>
                  ) : (
                    <a class="cut" href={jobHref(run.job)} title={visible(run.label)}>
                      {visible(shortName(run))}
                    </a>
                  )}
                  {onRemove && runs.length > 1 && (
                    <button
                      class="icon"
                      aria-label={`Remove ${visible(shortName(run))}`}
                      title="Remove from the comparison"
                      onClick={() => onRemove(run.run)}
                    >
                      ×
                    </button>
                  )}
                </span>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          <Row name="State">
            {runs.map((run) => (
              <td key={run.run}>
                <Badge state={run.state} />
                {run.cause && run.state !== 'done' && (
                  <small class="dim"> {visible(run.cause)}</small>
                )}
              </td>
            ))}
          </Row>
          <Row name="Time">
            {runs.map((run) => (
              <td key={run.run} class="num">
                {run.duration === null ? '–' : duration(run.duration)}
              </td>
            ))}
          </Row>
          <Row name="Started">
            {runs.map((run) => (
              <td key={run.run} class="num">
                {clock(run.started)}
              </td>
            ))}
          </Row>
          {(isAll || new Set(runs.map((run) => run.place ?? run.backend)).size > 1) && (
            <Row name="Runs on">
              {runs.map((run) => (
                <td key={run.run}>{visible(run.place ?? run.backend)}</td>
              ))}
            </Row>
          )}
        </tbody>
        <Group
          title="Parameters"
          rows={shown(data.params)}
          total={data.params.length}
          width={runs.length}
          isMono
        />
        {/* All metrics: that two results are equal is a result. */}
        <Group
          title="Metrics"
          rows={data.metrics}
          total={data.metrics.length}
          width={runs.length}
          isMono
        />
        <Group
          title="Provenance"
          rows={shown(data.code)}
          total={data.code.length}
          width={runs.length}
        />
      </table>
    </div>
  );
}

function Row({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <tr>
      <th scope="row">{name}</th>
      {children}
    </tr>
  );
}

function Group({
  title,
  rows,
  total,
  width,
  isMono,
}: {
  title: string;
  rows: ComparedRow[];
  total: number;
  width: number;
  isMono?: boolean;
}) {
  const equal = total - rows.length;
  return (
    <tbody>
      <tr class="group">
        <th scope="rowgroup">{title}</th>
        <td colSpan={width} class="dim">
          {total === 0 ? 'none' : equal > 0 && `${equal} equal`}
        </td>
      </tr>
      {rows.map((row) => (
        <tr key={row.name} class={row.differs ? 'differs' : ''}>
          <th scope="row" class={isMono ? 'mono' : ''}>
            <span class="cut" title={visible(row.name)}>
              {isMono ? visible(row.name) : labelOf(row.name)}
            </span>
          </th>
          {row.values.map((one, i) => (
            <td key={i} class={`num ${row.best === i ? 'best' : ''}`}>
              <span class="cut" title={textOf(isMono ? '' : row.name, one)}>
                {textOf(isMono ? '' : row.name, one)}
              </span>
              {row.best === i && <span class="tag">best</span>}
            </td>
          ))}
        </tr>
      ))}
    </tbody>
  );
}

/** `diff_bytes` has a label of its own; `conda` becomes `Conda`. */
const labelOf = (name: string) =>
  LABELS[name] ?? visible(name[0]!.toUpperCase() + name.slice(1).replaceAll('_', ' '));

function textOf(name: string, one: unknown): string {
  if (typeof one === 'boolean') return one ? 'yes' : 'no';
  if (name === 'commit' && typeof one === 'string') return visible(one.slice(0, 12));
  if (name === 'diff_bytes' && typeof one === 'number') return bytes(one);
  return value(Array.isArray(one) ? one.join(' ') : one);
}
