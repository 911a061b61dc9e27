// What the API says about the sweeps of the browser tests: importance of parameters, possible actions,
// and the form of a clone.
const NEIGHBORS = 'ranks compared between trials with neighboring values';
const GROUPS = 'ranks compared between its values';

export const importance = {
  metric: 'val_loss',
  importance: [
    { name: 'lr', score: 0.71, direction: 0, n: 16, method: NEIGHBORS },
    { name: 'opt', score: 0.22, direction: 0, n: 16, method: GROUPS },
    { name: 'wd', score: 0.02, direction: 1, n: 16, method: 'squared rank correlation' },
  ],
  explanation: `lr explains most of the ranking by val_loss (0.71 of 1), from 16 trials, which are few; method: ${NEIGHBORS}, each parameter alone, so combined effects do not count`,
};

/** The actions on a sweep; only a grid can have more values. */
export function choicesOf(sweep) {
  const number = (...states) => sweep.rows.filter((row) => states.includes(row.state)).length;
  const failed = number('failed', 'lost');
  const missing = number('cancelled', 'lost');
  const open = number('queued', 'running');
  const isGrid = sweep.method === 'grid';
  const choice = (action, problem, effect) => ({ action, problem, effect });
  return [
    choice('clone', null, 'Starts a new sweep from this definition, after you edited it.'),
    choice(
      'extend',
      isGrid ? 'The sweep already runs every point.' : null,
      `Adds trials to the ${sweep.rows.length} of the sweep.`,
    ),
    choice(
      'add_values',
      isGrid ? null : `The sweep runs ${sweep.rows.length} sampled trials, not every point.`,
      'Adds values of its parameters; only the new combinations run.',
    ),
    choice('add_point', null, 'Adds one trial with values that you choose.'),
    choice(
      'resume',
      missing || sweep.stopped ? null : 'Every trial has a result or a job.',
      `Runs ${missing} trials that have neither a result nor a job.`,
    ),
    choice(
      'rerun_failed',
      failed ? null : 'No trial failed.',
      `Runs ${failed} failed trial again.`,
    ),
    choice('stop', open ? null : 'No trial waits or runs.', `Cancels ${number('queued')} trials.`),
    choice(
      'rm',
      open ? `${open} trials did not finish yet; stop the sweep first.` : null,
      `Removes the sweep and its table of ${sweep.rows.length} trials with parameters and results. Its jobs with their logs, metrics and folders stay. This cannot be undone.`,
    ),
  ];
}

export const formOf = (sweep) => ({
  command: sweep.command,
  argv: null,
  parameters: [
    { name: 'lr', text: 'log(0.0001,0.1)', when: null },
    { name: 'opt', text: 'sgd,adam', when: null },
    { name: 'wd', text: '0,0.0001', when: "opt == 'adam'" },
  ],
  method: sweep.method,
  trials: sweep.method === 'grid' ? null : sweep.rows.length,
  seed: 7,
  metric: sweep.metric.name,
  goal: sweep.metric.goal,
  max_parallel: 4,
  name: `${sweep.name}-2`,
  options: { gpus: 2, on: 'local', cwd: '/home/ada/vision', gpu_mem: '20G', tags: ['night', 'a'] },
  kept: ["wd is used only if opt == 'adam'"],
});

/** Adds one trial for each combination of the given values. */
export function addTo(sweep, { parameters, dry_run: isDry }) {
  let points = [{}];
  for (const [name, text] of Object.entries(parameters))
    points = points.flatMap((point) => text.split(',').map((one) => ({ ...point, [name]: one })));
  const commands = points.map((point) => `python train.py ${Object.values(point).join(' ')}`);
  if (isDry) return { changed: 0, added: points.length, commands };
  for (const point of points)
    sweep.rows.push({ ...sweep.rows[0], ...point, trial: sweep.rows.length + 1, state: 'queued' });
  return { changed: points.length, added: points.length, jobs: [] };
}
