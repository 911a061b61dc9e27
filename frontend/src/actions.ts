// What a person can do to jobs, cards, sweeps and the daemon. What destroys asks first; all of it
// says what happened, with the way back where there is one.
import { post } from './api';
import { plural, elapsed, runtime, title } from './format';
import { byPriority, prioritiesFor } from './order';
import { ask } from './parts/dialog';
import { type Step, complain, tell, undo } from './parts/toast';
import { go, href, jobHref } from './route';
import { load, now } from './store';
import { type Gpu, type Job, isActive, isFinal, isWaiting } from './types';

interface Acted {
  changed: number;
  jobs?: number[];
}

const ids = (jobs: Job[]) => jobs.map((job) => job.id);
const named = (jobs: Job[]) => numbered(ids(jobs));
const numbered = (jobs: number[]) => (jobs.length === 1 ? `job ${jobs[0]}` : plural(jobs.length, 'job'));
/** Messages about the same jobs take each other's place: what was undone is no longer said. */
const about = (jobs: number[]) => `jobs ${jobs.join()}`;

async function attempt(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    complain(error);
  }
}

const act = (action: string, jobs: number[], more: object = {}) => post<Acted>('/api/jobs/act', { action, ids: jobs, ...more });

export const cancel = (all: Job[]) => attempt(async () => {
  const jobs = all.filter((job) => !isFinal(job));
  if (!jobs.length) return tell('Nothing to cancel: it is over already');
  const live = jobs.filter(isActive);
  const first = jobs[0]!;
  const time = runtime(first, now.value);
  const body = jobs.length > 1
    ? live.length
      ? `${live.length === jobs.length ? 'All' : live.length} of them ${live.length === 1 ? 'is' : 'are'} running. Their processes are asked to end, then killed.`
      : 'None of them has started yet.'
    : live.length
      ? `${title(first)} has been running for ${elapsed(time ?? 0)}. Its processes are asked to end, then killed.`
      : `${title(first)} has not started yet.`;
  if (!(await ask({ title: `Cancel ${named(jobs)}?`, body, yes: `Cancel ${named(jobs)}`, isDanger: true }))) return;
  const done = await act('cancel', ids(jobs));
  if (!done.changed) return tell('It was over already');
  if (live.length) tell(`${cap(named(jobs))}: being ended`, about(ids(jobs)));
  else tell(`${cap(named(jobs))} cancelled`, about(ids(jobs)), { label: 'Run again', run: () => void runAgain(ids(jobs)) });
});

const setHeld = (jobs: number[], isHeld: boolean, isFirst = true): Promise<void> => attempt(async () => {
  await act(isHeld ? 'hold' : 'release', jobs);
  tell(`${cap(numbered(jobs))} ${isHeld ? 'held' : 'released'}`, about(jobs), ...(isFirst ? [undo(() => void setHeld(jobs, !isHeld, false))] : []));
});

export async function hold(all: Job[]): Promise<void> {
  const jobs = all.filter((job) => job.state === 'queued');
  if (!jobs.length) return tell('Only queued jobs can be held');
  await setHeld(ids(jobs), true);
}

export async function release(all: Job[]): Promise<void> {
  const jobs = all.filter((job) => job.state === 'held');
  if (!jobs.length) return tell('Only held jobs can be released');
  await setHeld(ids(jobs), false);
}

export const holdOrRelease = (job: Job) => (job.state === 'held' ? release([job]) : hold([job]));

/** Jobs that have ended, once more as new jobs. */
export async function rerun(all: Job[]): Promise<void> {
  const jobs = all.filter(isFinal);
  if (!jobs.length) return tell('Only jobs that have ended can be run again');
  await runAgain(ids(jobs));
}

const runAgain = (jobs: number[]) => attempt(async () => {
  const made = (await act('rerun', jobs)).jobs ?? [];
  const first = made[0];
  if (first === undefined) return tell(`${cap(numbered(jobs))} queued again`);
  const text = made.length === 1 ? `Queued again as job ${first}` : `Queued again as jobs ${first}–${made[made.length - 1]}`;
  const back = undo(() => void attempt(async () => {
    await act('cancel', made);
    tell(`${cap(numbered(made))} cancelled`, about(made));
  }));
  tell(text, about(jobs), { label: 'Open', run: () => go(jobHref(first)) }, back);
});

export const remove = (all: Job[]) => attempt(async () => {
  const jobs = all.filter(isFinal);
  if (!jobs.length) return tell('Only jobs that are over can be removed');
  const isSure = await ask({ title: `Remove ${named(jobs)}?`, body: 'Records and logs are deleted. This cannot be undone.', yes: 'Remove', isDanger: true });
  if (!isSure) return;
  await act('rm', ids(jobs));
  tell(`${cap(named(jobs))} removed`, about(ids(jobs)));
  if (jobs.length === 1 && location.hash.startsWith(jobHref(jobs[0]!.id))) go('#/history');
});

async function setPriorities(changes: Map<number, number>): Promise<void> {
  for (const [priority, jobs] of byPriority(changes)) await act('priority', jobs, { priority });
  await load();
}

const undoPriorities = (jobs: Job[], subject: string): Step => undo(() => void attempt(async () => {
  await setPriorities(new Map(jobs.map((job) => [job.id, job.priority])));
  tell('Order as before', subject);
}));

export const askPriority = (all: Job[]) => attempt(async () => {
  const jobs = all.filter(isWaiting);
  if (!jobs.length) return tell('Only waiting jobs have a place in the queue');
  const answer = await ask({
    title: `Priority of ${named(jobs)}`,
    yes: 'Set',
    field: { label: 'Priority', type: 'number', value: String(jobs[0]!.priority), hint: 'Higher goes first; 0 is usual.' },
    run: ({ value }) => setPriorities(new Map(jobs.map((job) => [job.id, Number(value)]))),
  });
  if (answer) tell(`${cap(named(jobs))}: priority ${Number(answer.value)}`, 'order', undoPriorities(jobs, 'order'));
});

export const moveFirst = (job: Job) => attempt(async () => {
  await act('move_first', [job.id]);
  await load();
  const once = job.in_line ? '' : job.state === 'held' ? ' once it is released' : ' once it may start';
  tell(`Job ${job.id} goes first${once}`, 'order', undoPriorities([job], 'order'));
});

/** Put the job at `from` of the queue to `to`. Only jobs in line have an order to be changed. */
export const reorder = (queue: Job[], from: number, to: number) => attempt(async () => {
  const job = queue[from];
  if (!job || from === to || to < 0) return;
  const line = queue.filter((one) => one.in_line); // they come first in the queue, in their order
  if (!job.in_line) return tell(`Job ${job.id} is not in line: ${job.state === 'held' ? 'it is held' : 'it waits for something else'}`);
  const place = Math.min(to, line.length - 1);
  if (place === from) return;
  if (place === 0) return moveFirst(job);
  const changes = prioritiesFor(line, from, place);
  if (!changes.size) return;
  const before = line.filter((one) => changes.has(one.id));
  await setPriorities(changes);
  const others = changes.size - (changes.has(job.id) ? 1 : 0);
  tell(
    `Job ${job.id} moved: priority ${changes.get(job.id) ?? job.priority}` + (others ? ` (${plural(others, 'job')} above raised)` : ''),
    'order',
    undoPriorities(before, 'order'),
  );
});

export const cloneHref = (job: Job) => href(['submit'], { from: String(job.id) });

const cardPath = (gpu: Gpu) => `/api/gpus/${encodeURIComponent(gpu.uuid)}/act`;

export const drainGpu = (gpu: Gpu, isDrained: boolean, isFirst = true): Promise<void> => attempt(async () => {
  await post(cardPath(gpu), { action: isDrained ? 'drain' : 'restore' });
  await load();
  tell(
    isDrained ? `GPU ${gpu.index} drained: running jobs finish, no more start` : `GPU ${gpu.index} is in use again`,
    `gpu ${gpu.uuid}`,
    ...(isFirst ? [undo(() => void drainGpu(gpu, !isDrained, false))] : []),
  );
});

export const setSlots = (gpu: Gpu) => attempt(async () => {
  const set = async (slots: number) => {
    await post(cardPath(gpu), { action: 'slots', slots });
    await load();
  };
  const answer = await ask({
    title: `Slots of GPU ${gpu.index}`,
    yes: 'Set',
    field: { label: 'Jobs that may share it', type: 'number', value: String(gpu.slots), hint: 'For jobs that declare no memory; 1 to 64.' },
    run: ({ value }) => set(Number(value)),
  });
  if (!answer) return;
  const subject = `slots ${gpu.uuid}`;
  tell(`GPU ${gpu.index}: ${plural(Number(answer.value), 'slot')}`, subject, undo(() => void attempt(async () => {
    await set(gpu.slots);
    tell(`GPU ${gpu.index}: ${plural(gpu.slots, 'slot')}`, subject);
  })));
});

export const askDrain = () => attempt(async () => {
  const isSure = await ask({ title: 'Start no more jobs?', body: 'Running jobs finish; waiting ones stay in the queue until you resume.', yes: 'Drain' });
  if (isSure) await daemonAct('drain');
});

export const daemonAct = (action: 'drain' | 'resume' | 'start'): Promise<void> => attempt(async () => {
  await post('/api/daemon/act', { action });
  await load();
  if (action === 'start') tell('The daemon is running', 'daemon');
  else if (action === 'drain') tell('Draining: running jobs finish, no more start', 'daemon', undo(() => void daemonAct('resume')));
  else tell('Jobs start again', 'daemon', undo(() => void daemonAct('drain')));
});

const sweepPath = (name: string) => `/api/sweeps/${encodeURIComponent(name)}/act`;

export const stopSweep = (name: string, isKilling: boolean) => attempt(async () => {
  await post(sweepPath(name), { action: 'stop', kill: isKilling });
  tell(`Sweep ${name} stopped`, `sweep ${name}`, undo(() => void resumeSweep(name)));
});

export const resumeSweep = (name: string) => attempt(async () => {
  const { changed } = await post<Acted>(sweepPath(name), { action: 'resume' });
  tell(changed ? `Sweep ${name} goes on: ${plural(changed, 'trial')} queued` : `Sweep ${name} goes on`, `sweep ${name}`);
});

export const rerunFailed = (name: string) => attempt(async () => {
  const { changed } = await post<Acted>(sweepPath(name), { action: 'rerun_failed' });
  tell(changed ? `${plural(changed, 'failed trial')} of ${name} queued again` : `No failed trial of ${name} is left`, `sweep ${name}`);
});

export const extendSweep = async (name: string, trials: number) => {
  await post(sweepPath(name), { action: 'extend', trials });
  tell(`${plural(trials, 'more trial')} for ${name}`, `sweep ${name}`);
};

const cap = (text: string) => text[0]!.toUpperCase() + text.slice(1);
