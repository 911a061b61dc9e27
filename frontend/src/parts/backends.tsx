// Backends and their nodes, as their drivers last saw them.
import { ago, bytes, plural } from '../format';
import { backends, now } from '../store';
import type { Backend, BackendNode } from '../types';
import { visible } from '../words';
import { Empty, Section } from './bits';
import { type Column, Table } from './table';

/** How many GPUs are in use, as a bar. */
function Meter({ used, total }: { used: number; total: number }) {
  return (
    <span class="meter" role="img" aria-label={`${used} of ${plural(total, 'GPU')} in use`}>
      <i class="ours" style={{ width: `${(100 * used) / Math.max(1, total)}%` }} />
    </span>
  );
}

/** The options of a select: this host, all backends, and a chosen one that was removed. */
export function BackendOptions({ chosen }: { chosen: string }) {
  const names = backends.value.map((one) => one.name);
  return (
    <>
      <option value="local">This host</option>
      {names.map((name) => (
        <option key={name} value={name}>
          {visible(name)}
        </option>
      ))}
      {chosen && chosen !== 'local' && !names.includes(chosen) && (
        <option value={chosen}>{visible(chosen)} (removed)</option>
      )}
    </>
  );
}

/** One line for each backend, for the overview. */
export function BackendLines() {
  if (!backends.value.length) return null;
  return (
    <ul class="backends" aria-label="Backends">
      {backends.value.map((one) => {
        const up = one.nodes.filter((node) => node.state === 'up');
        const sum = (key: 'gpus' | 'used_gpus') => up.reduce((n, node) => n + node[key], 0);
        return (
          <li key={one.name}>
            <a href="#/gpus">
              <b>{visible(one.name)}</b> <span class="dim">{one.kind}</span>
            </a>
            {sum('gpus') > 0 && <Meter used={sum('used_gpus')} total={sum('gpus')} />}
            <span class="num">{one.summary}</span>
            {one.problem && <span class="bad-ink">✕ {visible(one.problem)}</span>}
          </li>
        );
      })}
    </ul>
  );
}

type NodeRow = BackendNode & { at: number };

const COLUMNS: Column<NodeRow>[] = [
  { name: 'name', head: 'Node', kind: 'wide p-title', cell: (node) => <b>{visible(node.name)}</b> },
  {
    name: 'gpus',
    head: 'GPUs in use',
    kind: 'p-meta',
    width: 190,
    cell: (node) =>
      node.gpus ? (
        <span class="node-use">
          <Meter used={node.used_gpus} total={node.gpus} />
          <span class="num">
            {node.used_gpus} of {node.gpus}
          </span>
        </span>
      ) : (
        <span class="dim">no GPUs</span>
      ),
  },
  {
    name: 'model',
    head: 'Model',
    kind: 'p-hide',
    width: 220,
    cell: (node) => <span class="cut">{visible(node.model)}</span>,
  },
  {
    name: 'memory',
    head: 'Memory',
    kind: 'num p-hide',
    width: 84,
    cell: (node) => (node.gpu_memory ? bytes(node.gpu_memory) : <span class="dim">–</span>),
  },
  {
    name: 'state',
    head: 'State',
    kind: 'p-meta p-cut',
    width: 220,
    cell: (node) => (
      <span class={`cut node-${node.state}`} title={visible(node.note)}>
        {visible(node.note || node.state)}
      </span>
    ),
  },
];

/** The nodes of a backend, for the screen of GPUs. */
export function BackendSection({ backend }: { backend: Backend }) {
  const { name, kind, problem, summary, nodes, checked_at } = backend;
  const rows = nodes.map((node, at) => ({ ...node, at }));
  return (
    <Section
      title={`Backend ${visible(name)}`}
      note={`${kind} · ${summary}${checked_at ? ` · seen ${ago(checked_at, now.value)}` : ''}`}
    >
      {problem && (
        <p class="note bad-ink" role="note">
          ✕ {visible(problem)}
        </p>
      )}
      {nodes.length ? (
        <Table
          label={`Nodes of ${visible(name)}`}
          rows={rows}
          columns={COLUMNS}
          id={(row) => row.at}
        />
      ) : (
        <Empty title="No nodes seen yet" />
      )}
    </Section>
  );
}
