// Notifications of the browser about jobs that end while no tab of the web UI is visible. One tab shows
// them: the one that reads the stream (see stream.ts). The browser is asked for permission only after
// a click; the choice is remembered.
import { signal } from '@preact/signals';
import { count, duration, plural, runtime, title } from './format';
import { go, jobHref } from './route';
import { isLoaded, onChange, queue, running } from './store';
import * as stream from './stream';
import { type Delta, type Job, isFinal } from './types';
import { visible } from './words';

export type Choice = 'off' | 'failures' | 'all';
const CHOICES: Choice[] = ['off', 'failures', 'all'];
const KEY = 'stoker-notify';
const WATCHED_KEY = 'stoker-notify-jobs';
const VISIBLE_LOCK = 'stoker-visible'; // held by every visible tab
const MOST_SINGLE = 3; // more jobs that end at once are one notification
const MOST_WATCHED = 500;

/** Browsers have notifications only on localhost and with https. */
export const isPossible = 'Notification' in self && 'locks' in navigator && isSecureContext;

export const choice = signal<Choice>('off');
/** Jobs that the user selected. */
export const watched = signal<ReadonlySet<number>>(new Set());

const unfinished = new Set<number>();
let loadedAt = 0;

/** Whether a hidden tab has to read the stream. */
const isOn = () =>
  isPossible &&
  Notification.permission === 'granted' &&
  (choice.peek() !== 'off' || watched.peek().size > 0);

/** Ask the browser for permission; call this only after a click. Returns whether it is granted. */
async function isAllowed(): Promise<boolean> {
  if (Notification.permission === 'default') await Notification.requestPermission();
  return Notification.permission === 'granted';
}

/** Choose which jobs notify. Returns false if the browser does not allow notifications. */
export async function choose(wanted: Choice): Promise<boolean> {
  if (wanted !== 'off' && !(await isAllowed())) return false;
  choice.value = wanted;
  save(KEY, wanted);
  return true;
}

/** Select a job, or deselect it. Returns false if the browser does not allow notifications. */
export async function watch(id: number, is: boolean): Promise<boolean> {
  if (is && !(await isAllowed())) return false;
  const others = [...watched.peek()].filter((one) => one !== id);
  setWatched(is ? [...others, id] : others);
  return true;
}

function setWatched(ids: number[]): void {
  watched.value = new Set(ids.slice(-MOST_WATCHED));
  save(WATCHED_KEY, JSON.stringify([...watched.peek()]));
}

function save(key: string, text: string): void {
  try {
    localStorage.setItem(key, text);
  } catch {
    // storage is blocked: the choice lasts as long as the tab
  }
}

function load(): void {
  try {
    choice.value = CHOICES.find((one) => one === localStorage.getItem(KEY)) ?? 'off';
    const ids: unknown = JSON.parse(localStorage.getItem(WATCHED_KEY) ?? '[]');
    if (Array.isArray(ids)) watched.value = new Set(ids.filter(Number.isInteger) as number[]);
  } catch {
    // storage is blocked, or has something else: no notifications
  }
}

export function start(): void {
  if (!isPossible) return;
  load();
  // Another tab changed the choice.
  addEventListener('storage', (event) => {
    if (event.key === KEY || event.key === WATCHED_KEY) load();
  });
  stream.keepReading(isOn);
  holdVisibleLock();
  document.addEventListener('visibilitychange', holdVisibleLock);
  isLoaded.subscribe((is) => is && remember());
  onChange((delta) => (delta ? onDelta(delta) : remember()));
}

/** Every visible tab holds a shared lock, which ends with the tab even if it crashes. */
let release: (() => void) | null = null;
function holdVisibleLock(): void {
  if (document.hidden) {
    release?.();
    release = null;
  } else if (!release) {
    const held = new Promise<void>((done) => (release = done));
    void navigator.locks.request(VISIBLE_LOCK, { mode: 'shared' }, () => held);
  }
}

async function isAnyTabVisible(): Promise<boolean> {
  if (!document.hidden) return true;
  const { held } = await navigator.locks.query();
  return (held ?? []).some((lock) => lock.name === VISIBLE_LOCK);
}

/** Events may have been missed: jobs that ended meanwhile are not announced. */
function remember(): void {
  unfinished.clear();
  for (const job of [...running.peek(), ...queue.peek()]) unfinished.add(job.id);
  loadedAt = Date.now();
}

function onDelta(delta: Delta): void {
  const ended: Job[] = [];
  for (const job of delta.jobs ?? []) {
    if (!isFinal(job)) unfinished.add(job.id);
    else if (unfinished.delete(job.id) || isNew(job)) ended.push(job);
  }
  const wanted = ended.filter((job) => watched.peek().has(job.id) || matches(job, choice.peek()));
  const gone = ended.map((job) => job.id).filter((id) => watched.peek().has(id));
  const isOurs = isOn() && stream.isReading() && wanted.length > 0;
  if (isOurs) void isAnyTabVisible().then((is) => !is && announce(wanted));
  if (gone.length) setWatched([...watched.peek()].filter((id) => !gone.includes(id)));
}

const announced = new Set<number>();
/** Whether a job ended since this tab was loaded, so fast that it was never seen unfinished. */
function isNew(job: Job): boolean {
  const at = Date.parse(job.submitted_at ?? '');
  if (announced.has(job.id) || !(at > loadedAt)) return false;
  announced.add(job.id);
  return true;
}

const matches = (job: Job, wanted: Choice) =>
  wanted === 'all' || (wanted === 'failures' && isFailure(job));

const isFailure = (job: Job) => job.state === 'failed' || job.state === 'lost';

function announce(jobs: Job[]): void {
  if (jobs.length > MOST_SINGLE) {
    const states = ['done', 'failed', 'lost', 'cancelled']
      .map((state) => [state, jobs.filter((job) => job.state === state).length] as const)
      .filter(([, number]) => number)
      .map(([state, number]) => `${count(number)} ${state}`);
    show(
      `${plural(jobs.length, 'job')} ended: ${states.join(', ')}`,
      '',
      'stoker-jobs',
      '#/history',
    );
    return;
  }
  for (const job of jobs) {
    const time = runtime(job, 0);
    const how = { done: 'finished', failed: 'failed', lost: 'was lost' }[job.state as string];
    const after = time === null ? '' : ` after ${duration(time)}`;
    const result = job.result ? `: ${visible(job.result)}` : '';
    show(
      `${title(job).slice(0, 80)} ${how ?? 'was cancelled'}${after}${result}`,
      `job ${job.id}`,
      `stoker-job-${job.id}`,
      jobHref(job.id),
    );
  }
}

/** The texts are shown as plain text by the browser. A newer notification replaces one with its tag. */
function show(text: string, body: string, tag: string, target: string): void {
  try {
    const shown = new Notification(text, { body, tag, icon: '/assets/icon.svg' });
    shown.onclick = () => {
      focus();
      go(target);
      shown.close();
    };
  } catch {
    // Browsers of phones show notifications only from service workers.
  }
}
