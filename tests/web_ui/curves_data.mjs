// Curves and comparisons of the fake server: /api/curves and /api/compare.

const METRICS = ['val_loss', 'acc', 'train_loss', 'lr_now', 'grad_norm', 'epoch'];
const STEPS = 400;

/** The runs of a selection, as features/results/run_selection.py resolves them; a sweep is all its trials. */
function runsOf(fake, words) {
  const found = new Map();
  for (const word of words) {
    const sweep = fake.sweeps.get(word) ?? fake.sweeps.get(word.slice(0, word.lastIndexOf('/')));
    if (sweep) {
      const trial = fake.sweeps.has(word) ? null : Number(word.slice(word.lastIndexOf('/') + 1));
      for (const row of sweep.rows) {
        if (trial !== null && row.trial !== trial) continue;
        const { lr, opt, wd } = row;
        add(found, {
          run: `${sweep.name}/${row.trial}`,
          label: `trial ${row.trial}: lr=${lr}, opt=${opt}`,
          job: row.job,
          sweep: sweep.name,
          trial: row.trial,
          state: row.state,
          params: { lr, opt, wd },
          loss: row.val_loss,
        });
      }
      continue;
    }
    const job = fake.jobs.get(Number(word));
    if (!job) throw Object.assign(new Error(`there is no run \`${word}\``), { status: 404 });
    const label = job.name ? `job ${job.id}: ${job.name}` : `job ${job.id}`;
    add(found, {
      run: String(job.id),
      label,
      job: job.id,
      sweep: job.sweep,
      trial: job.trial,
      state: job.state,
      params: job.params ?? {},
      loss: job.attempts ? 0.3 + (job.id % 7) / 20 : null,
    });
  }
  return [...found.values()];
}

function add(found, run) {
  if (!found.has(run.run)) found.set(run.run, run);
}

/** A noisy curve that ends near the result of its run. */
function pointsOf(run, metric, isTime, smooth, n) {
  const seed = [...run.run].reduce((sum, char) => (sum * 31 + char.charCodeAt(0)) % 997, 7);
  const points = [];
  let mean = null;
  for (let i = 0; i < n; i++) {
    const step = Math.round((i * STEPS) / n);
    const noise = Math.sin(step * 12.9898 + seed * 78.233) * 43758.5453;
    const jitter = (noise - Math.floor(noise) - 0.5) * 0.12;
    const fall = 2 / (1 + step / 25);
    const y = {
      val_loss: run.loss + fall + jitter,
      train_loss: run.loss * 0.6 + fall + jitter,
      acc: 1 - run.loss / 3 - fall / 3 + jitter / 4,
      lr_now: 1e-3 * 0.99 ** step,
      grad_norm: 10 ** (1 - step / 200 + jitter),
      epoch: step / 50,
    }[metric];
    mean = mean === null ? y : smooth * mean + (1 - smooth) * y;
    points.push([isTime ? step * (1.5 + (seed % 5) / 10) : step, smooth ? mean : y]);
  }
  return points;
}

export function curvesOf(fake, query) {
  const runs = runsOf(fake, query.getAll('runs'));
  const isTime = query.get('x') === 'time';
  const smooth = Number(query.get('smooth') ?? 0);
  const group = query.get('group');
  const limit = Number(query.get('lines') ?? 50);
  const n = Math.min(STEPS, Number(query.get('points') ?? 300));
  const reported = runs.filter((run) => run.loss !== null);
  const order = [...reported].sort((a, b) => a.loss - b.loss);
  const chosen = query.getAll('metric').length ? query.getAll('metric') : ['val_loss'];
  const rank = (run) => (order.length > 1 ? order.indexOf(run) / (order.length - 1) : 0);
  const lineOf = (metric) => (run) => {
    const { loss: _, ...fields } = run;
    return {
      ...fields,
      rank: rank(run),
      points: pointsOf(run, metric, isTime, smooth, n),
      raw: smooth ? pointsOf(run, metric, isTime, 0, n) : null,
    };
  };
  return {
    metrics: METRICS,
    x: isTime ? 'time' : 'step',
    charts: chosen.map((metric) => {
      const isKnown = METRICS.includes(metric);
      const lines = isKnown ? order.slice(0, group ? undefined : limit).map(lineOf(metric)) : [];
      return {
        metric,
        goal: metric === 'acc' ? 'max' : 'min',
        guessed: false,
        lines: lines.slice(0, limit),
        left_off: isKnown ? Math.max(0, order.length - limit) : 0,
        note: isKnown ? null : `no run has reported \`${metric}\``,
        ...(group && { bands: bandsOf(lines, group), band: 'mean, lowest and highest' }),
      };
    }),
  };
}

function bandsOf(lines, group) {
  const names = group.split(',');
  const labelOf = (line) => names.map((name) => `${name}=${line.params[name]}`).join(', ');
  return [...new Set(lines.map(labelOf))].sort().map((label) => {
    const members = lines.filter((line) => labelOf(line) === label);
    const values = names.map((name) => members[0].params[name]);
    const over = (pick) =>
      members[0].points.map(([x], i) => [x, pick(members.map((line) => line.points[i][1]))]);
    const last = members.map((line) => line.points.at(-1)[1]);
    const mean = last.reduce((a, b) => a + b) / last.length;
    return {
      label,
      value: names.length > 1 ? values : values[0],
      runs: members.length,
      mean: over((ys) => ys.reduce((a, b) => a + b) / ys.length),
      low: over((ys) => Math.min(...ys)),
      high: over((ys) => Math.max(...ys)),
      final: {
        n: last.length,
        mean,
        sd:
          last.length > 1
            ? Math.sqrt(last.reduce((s, y) => s + (y - mean) ** 2, 0) / (last.length - 1))
            : null,
        min: Math.min(...last),
        max: Math.max(...last),
        missing: 0,
      },
    };
  });
}

export function compareOf(fake, query) {
  const all = runsOf(fake, query.getAll('runs'));
  const runs = all.slice(0, 50);
  const row = (name, values, more = {}) => ({
    name,
    values,
    differs: new Set(values.map((one) => JSON.stringify(one))).size > 1,
    ...more,
  });
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.params)))];
  const best = (values, sign) => {
    const known = values.filter((one) => one !== null).sort((a, b) => sign * (a - b));
    return known.length > 1 ? values.indexOf(known[0]) : null;
  };
  const losses = runs.map((run) => run.loss);
  const accuracies = losses.map((loss) => (loss === null ? null : 1 - loss / 3));
  return {
    runs: runs.map(({ params: _, loss: __, ...run }, i) => ({
      ...run,
      cause: run.state === 'failed' ? 'gpu_oom' : null,
      backend: 'local',
      place: 'GPU 0',
      duration: run.loss === null ? null : 200 + 13 * i,
      started: run.loss === null ? null : new Date(1.7e12 + i * 6e4).toISOString(),
      ended: run.loss === null ? null : new Date(1.7e12 + i * 6e4 + 2e5).toISOString(),
    })),
    params: names.map((name) =>
      row(
        name,
        runs.map((run) => run.params[name] ?? null),
      ),
    ),
    metrics: [
      row('val_loss', losses, { best: best(losses, 1) }),
      row('acc', accuracies, { best: null }),
    ],
    code: [
      row(
        'commit',
        runs.map((run) => fake.code?.[run.job]?.commit ?? '3f9c2d1a'),
      ),
      row(
        'branch',
        runs.map(() => 'main'),
      ),
      row(
        'dirty',
        runs.map((run) => (run.job ?? 0) % 2 === 1),
      ),
      row(
        'python',
        runs.map(() => '3.11.4'),
      ),
      row(
        'gpu',
        runs.map((run) => ((run.job ?? 0) % 3 ? 'NVIDIA H100 80GB' : 'NVIDIA A100 40GB')),
      ),
    ],
    left_off: all.length - runs.length,
  };
}

/** The code of a job and its diff, as `fake.code` has them: `{ 2: { commit, diff } }`. */
export function codeOf(fake, id) {
  const { commit, diff = '', problem = null } = fake.code?.[id] ?? {};
  if (!commit) return null;
  return {
    summary: `commit ${commit.slice(0, 12)} on main${diff ? ', with changes' : ''}`,
    root: '/home/ada/project',
    commit,
    branch: 'main',
    remote: null,
    dirty: Boolean(diff) || problem !== null,
    diff_bytes: diff.length,
    problem,
  };
}

export const diffOf = (fake, id) => {
  const { diff = null } = fake.code?.[id] ?? {};
  return { diff, problem: diff === null ? 'no local changes' : null };
};
