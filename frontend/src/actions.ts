// The actions on jobs, GPUs, sweeps and the daemon. Destructive actions ask for confirmation. Every
// action shows a message, with an undo button where the action can be undone.
import { post } from './api';
import { plural, elapsed, runtime, title } from './format';
import { byPriority, prioritiesFor } from './order';
import { ask } from './parts/dialog';
import { type Step, notify, showError, undo } from './parts/toast';
import { go, href, jobHref } from './route';
import { load, now } from './store';
import { type Gpu, type Job, isActive, isFinal, isLocal, isStarted, isWaiting } from './types';

interface Acted {
  changed: number;
  jobs?: number[];
}

const ids = (jobs: Job[]) => jobs.map((job) => job.id);
const named = (jobs: Job[]) => numbered(ids(jobs));
const numbered = (jobs: number[]) =>
  jobs.length === 1 ? `job ${jobs[0]}` : plural(jobs.length, 'job');
/** The subject of a message: a newer message about the same jobs replaces an older one. */
const about = (jobs: number[]) => `jobs ${jobs.join()}`;

async function reportErrors(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    showError(error);
  }
}

const act = (action: string, jobs: number[], more: object = {}) =>
  post<Acted>('/api/jobs/act', { action, ids: jobs, ...more });

export const cancel = (all: Job[]) =>
  reportErrors(async () => {
    const jobs = all.filter((job) => !isFinal(job));
    if (!jobs.length) return notify('Nothing to cancel: already finished');
    const live = jobs.filter(isStarted);
    const first = jobs[0]!;
    const time = runtime(first, now.value);
    const body =
      jobs.length > 1
        ? live.length
          ? `${live.length === jobs.length ? 'All' : live.length} of them ${live.length === 1 ? 'is' : 'are'} running. Their processes get SIGTERM, then SIGKILL.`
          : 'None of them has started yet.'
        : live.length
          ? `${title(first)} has been running for ${elapsed(time ?? 0)}. Its processes get SIGTERM, then SIGKILL.`
          : `${title(first)} has not started yet.`;
    if (
      !(await ask({
        title: `Cancel ${named(jobs)}?`,
        body,
        yes: `Cancel ${named(jobs)}`,
        isDanger: true,
      }))
    )
      return;
    const done = await act('cancel', ids(jobs));
    if (!done.changed) return notify('Already finished');
    if (jobs.some(isActive)) notify(`Canceling ${named(jobs)}`, about(ids(jobs)));
    else
      notify(`${cap(named(jobs))} cancelled`, about(ids(jobs)), {
        label: 'Rerun',
        run: () => void submitAgain(ids(jobs)),
      });
  });

const setHeld = (jobs: number[], isHeld: boolean, isFirst = true): Promise<void> =>
  reportErrors(async () => {
    await act(isHeld ? 'hold' : 'release', jobs);
    notify(
      `${cap(numbered(jobs))} ${isHeld ? 'held' : 'released'}`,
      about(jobs),
      ...(isFirst ? [undo(() => void setHeld(jobs, !isHeld, false))] : []),
    );
  });

export async function hold(all: Job[]): Promise<void> {
  const jobs = all.filter((job) => job.state === 'queued');
  if (!jobs.length) return notify('Only queued jobs can be held');
  await setHeld(ids(jobs), true);
}

export async function release(all: Job[]): Promise<void> {
  const jobs = all.filter((job) => job.state === 'held');
  if (!jobs.length) return notify('Only held jobs can be released');
  await setHeld(ids(jobs), false);
}

export const holdOrRelease = (job: Job) => (job.state === 'held' ? release([job]) : hold([job]));

/** Submit finished jobs again, as new jobs. */
export async function rerun(all: Job[]): Promise<void> {
  const jobs = all.filter(isFinal);
  if (!jobs.length) return notify('Only finished jobs can be rerun');
  await submitAgain(ids(jobs));
}

const submitAgain = (jobs: number[]) =>
  reportErrors(async () => {
    const made = (await act('rerun', jobs)).jobs ?? [];
    const first = made[0];
    if (first === undefined) return notify(`${cap(numbered(jobs))} submitted again`);
    const text =
      made.length === 1
        ? `Submitted again as job ${first}`
        : `Submitted again as jobs ${first}–${made[made.length - 1]}`;
    const undoStep = undo(
      () =>
        void reportErrors(async () => {
          await act('cancel', made);
          notify(`${cap(numbered(made))} cancelled`, about(made));
        }),
    );
    notify(text, about(jobs), { label: 'Open', run: () => go(jobHref(first)) }, undoStep);
  });

export const remove = (all: Job[]) =>
  reportErrors(async () => {
    const jobs = all.filter(isFinal);
    if (!jobs.length) return notify('Only finished jobs can be removed');
    const isSure = await ask({
      title: `Remove ${named(jobs)}?`,
      body: 'Records and logs are deleted. This cannot be undone.',
      yes: 'Remove',
      isDanger: true,
    });
    if (!isSure) return;
    await act('rm', ids(jobs));
    notify(`${cap(named(jobs))} removed`, about(ids(jobs)));
    if (jobs.length === 1 && location.hash.startsWith(jobHref(jobs[0]!.id))) go('#/history');
  });

async function setPriorities(changes: Map<number, number>): Promise<void> {
  for (const [priority, jobs] of byPriority(changes)) await act('priority', jobs, { priority });
  await load();
}

const undoPriorities = (jobs: Job[], subject: string): Step =>
  undo(
    () =>
      void reportErrors(async () => {
        await setPriorities(new Map(jobs.map((job) => [job.id, job.priority])));
        notify('Order restored', subject);
      }),
  );

export const askPriority = (all: Job[]) =>
  reportErrors(async () => {
    const jobs = all.filter(isWaiting);
    if (!jobs.length) return notify('Only the priority of waiting jobs can be changed');
    const answer = await ask({
      title: `Priority of ${named(jobs)}`,
      yes: 'Set',
      field: {
        label: 'Priority',
        type: 'number',
        value: String(jobs[0]!.priority),
        hint: 'Jobs with a higher priority start first; the default is 0.',
      },
      run: ({ value }) => setPriorities(new Map(jobs.map((job) => [job.id, Number(value)]))),
    });
    if (answer)
      notify(
        `${cap(named(jobs))}: priority ${Number(answer.value)}`,
        'order',
        undoPriorities(jobs, 'order'),
      );
  });

export const moveFirst = (job: Job) =>
  reportErrors(async () => {
    await act('move_first', [job.id]);
    await load();
    const condition = job.ready
      ? ''
      : job.state === 'held'
        ? ' once it is released'
        : ' once it can start';
    notify(
      `Job ${job.id} is first in the queue${condition}`,
      'order',
      undoPriorities([job], 'order'),
    );
  });

/** Move the job at position `from` of the queue to `to`. Only jobs that wait for a GPU can be moved. */
export const reorder = (queue: Job[], from: number, to: number) =>
  reportErrors(async () => {
    const job = queue[from];
    if (!job || from === to || to < 0) return;
    const movable = queue.filter((one) => one.ready); // the first part of the queue, in scheduling order
    if (!job.ready)
      return notify(
        `Job ${job.id} cannot be moved: ${
          job.state === 'held'
            ? 'it is held'
            : isLocal(job)
              ? 'it is not waiting for a GPU'
              : `it runs on ${job.on}`
        }`,
      );
    const place = Math.min(to, movable.length - 1);
    if (place === from) return;
    if (place === 0) return moveFirst(job);
    const changes = prioritiesFor(movable, from, place);
    if (!changes.size) return;
    const before = movable.filter((one) => changes.has(one.id));
    await setPriorities(changes);
    const others = changes.size - (changes.has(job.id) ? 1 : 0);
    notify(
      `Job ${job.id} moved: priority ${changes.get(job.id) ?? job.priority}` +
        (others ? ` (${plural(others, 'job')} above raised)` : ''),
      'order',
      undoPriorities(before, 'order'),
    );
  });

export const cloneHref = (job: Job) => href(['submit'], { from: String(job.id) });

const gpuPath = (gpu: Gpu) => `/api/gpus/${encodeURIComponent(gpu.uuid)}/act`;

export const drainGpu = (gpu: Gpu, isDrained: boolean, isFirst = true): Promise<void> =>
  reportErrors(async () => {
    await post(gpuPath(gpu), { action: isDrained ? 'drain' : 'restore' });
    await load();
    notify(
      isDrained
        ? `GPU ${gpu.index} drained: running jobs finish, no new jobs start`
        : `GPU ${gpu.index} restored`,
      `gpu ${gpu.uuid}`,
      ...(isFirst ? [undo(() => void drainGpu(gpu, !isDrained, false))] : []),
    );
  });

export const setSlots = (gpu: Gpu) =>
  reportErrors(async () => {
    const set = async (slots: number) => {
      await post(gpuPath(gpu), { action: 'slots', slots });
      await load();
    };
    const answer = await ask({
      title: `Slots of GPU ${gpu.index}`,
      yes: 'Set',
      field: {
        label: 'Jobs at a time',
        type: 'number',
        value: String(gpu.slots),
        hint: 'For jobs without a GPU memory request; 1 to 64.',
      },
      run: ({ value }) => set(Number(value)),
    });
    if (!answer) return;
    const subject = `slots ${gpu.uuid}`;
    notify(
      `GPU ${gpu.index}: ${plural(Number(answer.value), 'slot')}`,
      subject,
      undo(
        () =>
          void reportErrors(async () => {
            await set(gpu.slots);
            notify(`GPU ${gpu.index}: ${plural(gpu.slots, 'slot')}`, subject);
          }),
      ),
    );
  });

export const askDrain = () =>
  reportErrors(async () => {
    const isSure = await ask({
      title: 'Stop starting new jobs?',
      body: 'Running jobs finish; waiting jobs stay in the queue until you resume.',
      yes: 'Drain',
    });
    if (isSure) await daemonAct('drain');
  });

export const daemonAct = (action: 'drain' | 'resume' | 'start'): Promise<void> =>
  reportErrors(async () => {
    await post('/api/daemon/act', { action });
    await load();
    if (action === 'start') notify('The daemon is running', 'daemon');
    else if (action === 'drain')
      notify(
        'Draining: running jobs finish, no new jobs start',
        'daemon',
        undo(() => void daemonAct('resume')),
      );
    else
      notify(
        'Resumed: jobs start again',
        'daemon',
        undo(() => void daemonAct('drain')),
      );
  });

const sweepPath = (name: string) => `/api/sweeps/${encodeURIComponent(name)}/act`;

export const stopSweep = (name: string, isKilling: boolean) =>
  reportErrors(async () => {
    await post(sweepPath(name), { action: 'stop', kill: isKilling });
    notify(
      `Sweep ${name} stopped`,
      `sweep ${name}`,
      undo(() => void resumeSweep(name)),
    );
  });

export const resumeSweep = (name: string) =>
  reportErrors(async () => {
    const { changed } = await post<Acted>(sweepPath(name), { action: 'resume' });
    notify(
      changed
        ? `Sweep ${name} resumed: ${plural(changed, 'trial')} queued`
        : `Sweep ${name} resumed`,
      `sweep ${name}`,
    );
  });

export const rerunFailed = (name: string) =>
  reportErrors(async () => {
    const { changed } = await post<Acted>(sweepPath(name), { action: 'rerun_failed' });
    notify(
      changed
        ? `${plural(changed, 'failed trial')} of ${name} submitted again`
        : `${name} has no failed trials to rerun`,
      `sweep ${name}`,
    );
  });

/** `expected`: the number of trials on the screen, so that a request that is sent twice adds once. */
export const extendSweep = async (name: string, trials: number, expected: number | null) => {
  await post(sweepPath(name), {
    action: 'extend',
    trials,
    ...(expected === null ? {} : { expected }),
  });
  notify(`${plural(trials, 'trial')} added to ${name}`, `sweep ${name}`);
};

interface Added extends Acted {
  added: number;
  commands: string[];
}

/** What adding these values of parameters, or this point, would do. */
export const previewAdded = (name: string, values: [string, string][], isPoint: boolean) =>
  post<Added>(sweepPath(name), {
    action: 'add',
    parameters: Object.fromEntries(values),
    point: isPoint,
    dry_run: true,
  });

export const addToSweep = async (
  name: string,
  parameters: Record<string, string>,
  isPoint: boolean,
) => {
  const { added } = await post<Added>(sweepPath(name), {
    action: 'add',
    parameters,
    point: isPoint,
  });
  notify(
    added ? `${plural(added, 'trial')} added to ${name}` : `${name} already has these trials`,
    `sweep ${name}`,
  );
};

export const removeSweep = async (name: string, isWithJobs: boolean) => {
  const { removed_jobs: jobs } = await post<{ removed_jobs: number }>(sweepPath(name), {
    action: 'rm',
    jobs: isWithJobs,
  });
  notify(`Sweep ${name} removed${jobs ? `, with ${plural(jobs, 'job')}` : ''}`, `sweep ${name}`);
  go('#/sweeps');
};

export const cloneSweepHref = (name: string) => href(['submit'], { kind: 'sweep', clone: name });

const cap = (text: string) => text[0]!.toUpperCase() + text.slice(1);
