// What the API says about tables: pages of jobs, groups of failures, columns and completion. Filters are
// evaluated as JavaScript, which is close enough for the scenarios; `real_tables.mjs` uses the real server.

const JOB_COLUMNS = [
  ['id', 'job', true],
  ['state', 'job', false],
  ['name', 'job', false],
  ['command', 'job', false],
  ['result', 'job', false],
  ['cause', 'job', false],
  ['gpu', 'job', false],
  ['gpus', 'job', true],
  ['priority', 'job', true],
  ['duration', 'job', true],
  ['submitted', 'job', true],
  ['metric.loss', 'metric', true],
  ['param.lr', 'param', true],
];
const NEED_PYARROW =
  'Parquet files need the package pyarrow, which is not installed: pip install pyarrow';

const column = ([name, kind, isNumber]) => ({
  name,
  kind,
  words: `${name} of the job`,
  is_number: isNumber,
});

/** A value of a job, as filters name it. */
function valueOf(one, name) {
  if (name === 'metric.loss') return one.state === 'done' ? 1 / one.id : null;
  if (name === 'param.lr') return one.sweep ? one.trial / 1000 : null;
  if (name === 'submitted') return Date.parse(one.submitted_at) / 1000;
  if (name === 'duration')
    return one.ended_at && one.started_at
      ? (Date.parse(one.ended_at) - Date.parse(one.started_at)) / 1000
      : null;
  if (name === 'gpu') return one.place;
  return one[name] ?? null;
}

/** Rows that match a filter; throws what `refuse` makes of an error. */
export function filtered(rows, where, refuse, read = (row, name) => row[name]) {
  if (!where) return rows;
  const strings = [];
  let code = where.replace(/'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"/g, (text) => {
    strings.push(text.slice(1, -1));
    return `§${strings.length - 1}§`;
  });
  code = code.replace(/([a-z_][\w.]*) in [[(]([^\])]*)[\])]/g, '[$2].includes($1)');
  const known = new Set(['and', 'or', 'not', 'None', 'includes']);
  const unknown = /\b[a-z_][\w.]*/g;
  for (const found of code.matchAll(unknown)) {
    const isKnown =
      known.has(found[0]) ||
      JOB_COLUMNS.some(([name]) => name === found[0]) ||
      found[0] in (rows[0] ?? {});
    if (!isKnown) {
      const at = where.indexOf(found[0]);
      throw refuse(`unknown column \`${found[0]}\``, [at, at + found[0].length]);
    }
  }
  code = code.replace(unknown, (name) =>
    known.has(name) ? name : `read(row, ${JSON.stringify(name)})`,
  );
  code = code.replaceAll(' and ', ' && ').replaceAll(' or ', ' || ').replaceAll('not ', '!');
  code = code.replaceAll('None', 'null').replace(/§(\d+)§/g, 'strings[$1]');
  let test;
  try {
    test = new Function('row', 'read', 'strings', `return (${code})`);
  } catch {
    throw refuse(`\`${where}\` is not an expression: it ends too early`, [
      where.length,
      where.length,
    ]);
  }
  // A comparison with undefined is false, as one with a missing value is.
  const readDefined = (row, name) => read(row, name) ?? undefined;
  return rows.filter((row) => test(row, readDefined, strings));
}

export function sorted(rows, sort, read = (row, name) => row[name]) {
  if (!sort) return rows;
  const name = sort.replace(/^-/, '');
  const sign = sort.startsWith('-') ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [x, y] = [read(a, name) ?? null, read(b, name) ?? null];
    return (x === null) - (y === null) || sign * (x > y ? 1 : x < y ? -1 : 0);
  });
}

function groupsOf(rows) {
  const found = new Map();
  for (const row of rows.filter((one) => ['failed', 'lost'].includes(one.state))) {
    const result = row.result || 'exit 1';
    const key = `${row.state}\n${result}`;
    const old = found.get(key);
    found.set(key, {
      state: row.state,
      result,
      size: (old?.size ?? 0) + 1,
      job: row.id ?? row.job,
      trial: row.trial ?? null,
      where: `state == '${row.state}' and result == '${result}'`,
    });
  }
  return [...found.values()].sort((a, b) => b.size - a.size);
}

function completed(columns, query) {
  const text = query.get('text').slice(0, Number(query.get('at')));
  const word = /[\w.]*$/.exec(text)[0];
  const isState = /state == '?\w*$/.test(text);
  const start = isState ? text.lastIndexOf('=') + 2 : text.length - word.length;
  const offered = isState
    ? ["'done'", "'failed'", "'running'"].map((state) => ({ text: state, note: '' }))
    : columns.map(([name]) => ({ text: name, note: `${name} of the job` }));
  const wanted = word.toLowerCase();
  return {
    start,
    end: text.length,
    suggestions: offered.filter((one) => one.text.toLowerCase().includes(wanted)),
  };
}

/** The answer for a path of a table, or null for other paths. `match` applies the quick filters. */
export function tableAnswer(fake, path, query, match, refuse) {
  const sweep = /^\/api\/sweeps\/([^/]+)\/(failures|columns|complete)$/.exec(path);
  if (sweep) {
    const { rows } = fake.sweeps.get(decodeURIComponent(sweep[1]));
    const names = [...Object.keys(rows[0] ?? {}), 'result', 'cause', 'exit'];
    const columns = names.map((name) => [
      name,
      ['lr', 'opt', 'wd'].includes(name)
        ? 'param'
        : ['val_loss', 'acc'].includes(name)
          ? 'metric'
          : 'job',
      false,
    ]);
    if (sweep[2] === 'columns') return { columns: columns.map(column), parquet: NEED_PYARROW };
    if (sweep[2] === 'complete') return completed(columns, query);
    return { groups: groupsOf(filtered(rows, query.get('where'), refuse)) };
  }
  if (!path.startsWith('/api/history')) return null;
  if (path.endsWith('/columns')) return { columns: JOB_COLUMNS.map(column), parquet: NEED_PYARROW };
  if (path.endsWith('/complete')) return completed(JOB_COLUMNS, query);
  const newest = [...fake.jobs.values()].sort((a, b) => b.id - a.id).filter(match);
  const rows = filtered(newest, query.get('where'), refuse, valueOf);
  if (path.endsWith('/failures')) return { groups: groupsOf(rows) };
  const limit = Number(query.get('limit') ?? 200);
  const sort = query.get('sort');
  const before = Number(query.get('before') ?? Infinity);
  const offset = sort ? Number(query.get('offset') ?? 0) : 0;
  const rest = sort ? sorted(rows, sort, valueOf) : rows.filter((one) => one.id < before);
  const page = rest.slice(offset, offset + limit);
  return {
    jobs: page.map((one) => ({
      ...one,
      values: Object.fromEntries(query.getAll('column').map((name) => [name, valueOf(one, name)])),
    })),
    next: rest.length <= offset + limit ? null : sort ? offset + limit : (page.at(-1)?.id ?? null),
    total: rows.length,
    has_more: false,
    unread: 0,
  };
}
