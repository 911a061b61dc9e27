// What a person can do to jobs, cards, sweeps and the daemon. What destroys asks first; all of it
// says what happened, with the way back where there is one.
import { post } from './api';
import { plural, elapsed, runtime, title } from './format';
import { byPriority, prioritiesFor } from './order';
import { ask } from './parts/dialog';
import { complain, tell } from './parts/toast';
import { go, href, jobHref } from './route';
import { load, now } from './store';
import { type Gpu, type Job, isActive, isFinal, isWaiting } from './types';

interface Acted {
  changed: number;
  jobs?: number[];
}

const ids = (jobs: Job[]) => jobs.map((job) => job.id);
const named = (jobs: Job[]) => (jobs.length === 1 ? `job ${jobs[0]!.id}` : plural(jobs.length, 'job'));

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
  tell(live.length ? `${cap(named(jobs))}: being ended` : `${cap(named(jobs))} cancelled`, 'Run again', () => void rerun(jobs));
  if (!done.changed) tell('It was over already');
});

export const hold = (all: Job[]) => attempt(async () => {
  const jobs = all.filter((job) => job.state === 'queued');
  if (!jobs.length) return tell('Only queued jobs can be held');
  await act('hold', ids(jobs));
  tell(`${cap(named(jobs))} held`, 'Undo', () => void attempt(async () => {
    await act('release', ids(jobs));
    tell(`${cap(named(jobs))} released`);
  }));
});

export const release = (all: Job[]) => attempt(async () => {
  const jobs = all.filter((job) => job.state === 'held');
  if (!jobs.length) return tell('Only held jobs can be released');
  await act('release', ids(jobs));
  tell(`${cap(named(jobs))} released`, 'Undo', () => void attempt(async () => {
    await act('hold', ids(jobs));
    tell(`${cap(named(jobs))} held`);
  }));
});

export const holdOrRelease = (job: Job) => (job.state === 'held' ? release([job]) : hold([job]));

export const rerun = (jobs: Job[]) => attempt(async () => {
  const done = await act('rerun', ids(jobs));
  const made = done.jobs ?? [];
  const first = made[0];
  if (first === undefined) tell(`${cap(named(jobs))} queued again`);
  else tell(made.length === 1 ? `Queued again as job ${first}` : `Queued again as jobs ${first}–${made[made.length - 1]}`, 'Open', () => go(jobHref(first)));
});

export const remove = (all: Job[]) => attempt(async () => {
  const jobs = all.filter(isFinal);
  if (!jobs.length) return tell('Only jobs that are over can be removed');
  const isSure = await ask({ title: `Remove ${named(jobs)}?`, body: 'Records and logs are deleted. This cannot be undone.', yes: 'Remove', isDanger: true });
  if (!isSure) return;
  await act('rm', ids(jobs));
  tell(`${cap(named(jobs))} removed`);
  if (jobs.length === 1 && location.hash.startsWith(jobHref(jobs[0]!.id))) go('#/history');
});

async function setPriorities(changes: Map<number, number>): Promise<void> {
  for (const [priority, jobs] of byPriority(changes)) await act('priority', jobs, { priority });
  await load();
}

const undoPriorities = (jobs: Job[]) => () => void attempt(async () => {
  await setPriorities(new Map(jobs.map((job) => [job.id, job.priority])));
  tell('Order as before');
});

export const askPriority = (all: Job[]) => attempt(async () => {
  const jobs = all.filter(isWaiting);
  if (!jobs.length) return tell('Only waiting jobs have a place in the queue');
  const answer = await ask({
    title: `Priority of ${named(jobs)}`,
    yes: 'Set',
    field: { label: 'Priority', type: 'number', value: String(jobs[0]!.priority), hint: 'Higher goes first; 0 is usual.' },
  });
  if (!answer) return;
  const priority = Number(answer.value);
  await setPriorities(new Map(jobs.map((job) => [job.id, priority])));
  tell(`${cap(named(jobs))}: priority ${priority}`, 'Undo', undoPriorities(jobs));
});

export const moveFirst = (job: Job) => attempt(async () => {
  await act('move_first', [job.id]);
  await load();
  tell(`Job ${job.id} goes first`, 'Undo', undoPriorities([job]));
});

/** Put the job at `from` of the queue to `to`. */
export const reorder = (queue: Job[], from: number, to: number) => attempt(async () => {
  const job = queue[from];
  if (!job || from === to || to < 0 || to >= queue.length) return;
  if (to === 0) return moveFirst(job);
  const changes = prioritiesFor(queue, from, to);
  if (!changes.size) return;
  const before = queue.filter((one) => changes.has(one.id));
  await setPriorities(changes);
  const others = changes.size - (changes.has(job.id) ? 1 : 0);
  tell(
    `Job ${job.id} moved: priority ${changes.get(job.id) ?? job.priority}` + (others ? ` (${plural(others, 'job')} above raised)` : ''),
    'Undo',
    undoPriorities(before),
  );
});

export const cloneHref = (job: Job) => href(['submit'], { from: String(job.id) });

export const drainGpu = (gpu: Gpu, isDrained: boolean) => attempt(async () => {
  const path = `/api/gpus/${encodeURIComponent(gpu.uuid)}/act`;
  const other = isDrained ? 'restore' : 'drain';
  await post(path, { action: isDrained ? 'drain' : 'restore' });
  await load();
  tell(isDrained ? `GPU ${gpu.index} drained: running jobs finish, no more start` : `GPU ${gpu.index} is in use again`, 'Undo', () => void attempt(async () => {
    await post(path, { action: other });
    await load();
    tell(`GPU ${gpu.index}: ${other === 'drain' ? 'drained' : 'in use again'}`);
  }));
});

export const setSlots = (gpu: Gpu) => attempt(async () => {
  const path = `/api/gpus/${encodeURIComponent(gpu.uuid)}/act`;
  const answer = await ask({
    title: `Slots of GPU ${gpu.index}`,
    yes: 'Set',
    field: { label: 'Jobs that may share it', type: 'number', value: String(gpu.slots), hint: 'For jobs that declare no memory.' },
  });
  if (!answer) return;
  const set = async (slots: number) => {
    await post(path, { action: 'slots', slots });
    await load();
  };
  await set(Number(answer.value));
  tell(`GPU ${gpu.index}: ${plural(Number(answer.value), 'slot')}`, 'Undo', () => void attempt(() => set(gpu.slots)));
});

export const askDrain = () => attempt(async () => {
  const isSure = await ask({ title: 'Start no more jobs?', body: 'Running jobs finish; waiting ones stay in the queue until you resume.', yes: 'Drain' });
  if (isSure) await daemonAct('drain');
});

export const daemonAct = (action: 'drain' | 'resume' | 'start') => attempt(async () => {
  await post('/api/daemon/act', { action });
  await load();
  if (action === 'start') tell('The daemon is running');
  else if (action === 'drain') tell('Draining: running jobs finish, no more start', 'Undo', () => void daemonAct('resume'));
  else tell('Jobs start again', 'Undo', () => void daemonAct('drain'));
});

export const sweepAct = (name: string, action: string, more: object, said: string, back?: string) => attempt(async () => {
  await post(`/api/sweeps/${encodeURIComponent(name)}/act`, { action, ...more });
  if (back) tell(said, 'Undo', () => void sweepAct(name, back, {}, `Sweep ${name}: ${back === 'resume' ? 'going on' : back}`));
  else tell(said);
});

const cap = (text: string) => text[0]!.toUpperCase() + text.slice(1);
