// The one stream of changes. A browser allows six connections to a server, so the tabs of one
// browser share a stream: the tab that holds a lock reads it and passes every event on. Hidden tabs
// hold no lock.
import { signal } from '@preact/signals';
import { ApiError, isSignedIn, whenLost } from './api';
import { EventReader } from './events';

export type Health = 'starting' | 'live' | 'stale';
export const health = signal<Health>('starting');
/** When the server was last heard (Date.now()); it says something at least every 15 seconds. */
export const heardAt = signal(Date.now());
/** When the next attempt is made (Date.now()), while stale. */
export const retryAt = signal(0);

const SILENCE = 40_000; // the server says something every 15 s
const BACK_OFF = [500, 1000, 2000, 4000, 8000, 15_000];

interface Handlers {
  change(data: string): void;
  /** We may have missed something: fetch all again. */
  reset(): Promise<void>;
  lastId(): number;
}

type Message = { kind: 'change'; data: string } | { kind: 'reset' } | { kind: 'beat' } | { kind: 'health'; health: Health; retryAt: number };

let handlers: Handlers;
let stop: AbortController | null = null;
let wake: (() => void) | null = null;
const isShared = 'locks' in navigator && 'BroadcastChannel' in self; // locks need localhost or https
const channel = isShared ? new BroadcastChannel('stoker') : null;

export function start(given: Handlers): void {
  handlers = given;
  whenLost(suspect);
  channel?.addEventListener('message', (event: MessageEvent<Message>) => {
    if (document.hidden || stop?.signal.aborted) return;
    const message = event.data;
    if (message.kind !== 'health') hearStream();
    else if (message.health === 'live') hear();
    if (message.kind === 'change') handlers.change(message.data);
    else if (message.kind === 'reset') void handlers.reset().catch(() => undefined);
    else if (message.kind === 'health') say(message.health, message.retryAt, false);
  });
  document.addEventListener('visibilitychange', () => (document.hidden ? pause() : resume()));
  addEventListener('pagehide', pause);
  addEventListener('pageshow', (event) => event.persisted && resume());
  addEventListener('online', retryNow);
  if (!document.hidden) resume();
}

export function retryNow(): void {
  wake?.();
}

/** The server answered, this moment. */
export function hear(): void {
  heardAt.value = Date.now();
}

/** The stream lives: whatever a request of ours ran into, the server is there. */
function hearStream(): void {
  hear();
  if (health.value === 'stale') say('live', 0, false);
}

/** Whether an error says no more than the banner does. */
export const isTold = (error: unknown) => error instanceof ApiError && error.code === 'unreachable' && health.value === 'stale';

/** A request of ours found the server gone before the stream did. */
function suspect(): void {
  if (health.value === 'live') say('stale', 0, false);
}

function pause(): void {
  stop?.abort();
  stop = null;
}

function resume(): void {
  if (stop !== null) return;
  stop = new AbortController();
  const mine = stop.signal;
  if (!isShared) {
    void read(mine);
    return;
  }
  void navigator.locks.request('stoker-stream', { ifAvailable: true }, async (lock) => {
    if (lock) await read(mine);
  }).then(() => {
    if (mine.aborted) return;
    // Another tab reads. While this one was hidden it may have slept through messages of it.
    if (health.value === 'starting') say('live', 0, false);
    else void handlers.reset().catch(() => undefined);
    return navigator.locks.request('stoker-stream', { signal: mine }, () => read(mine));
  }).catch(() => undefined);
}

function say(now: Health, at = 0, tell = true): void {
  health.value = now;
  retryAt.value = at;
  if (tell) channel?.postMessage({ kind: 'health', health: now, retryAt: at } satisfies Message);
}

async function read(mine: AbortSignal): Promise<void> {
  for (let failures = 0; !mine.aborted; ) {
    try {
      await readOnce(mine, () => {
        failures = 0;
        say('live');
      });
    } catch (error) {
      if (mine.aborted) return;
      if (error instanceof ApiError && error.status === 401) {
        isSignedIn.value = false;
        return;
      }
    }
    if (mine.aborted) return;
    // A server that closes the stream in good order is asked again at once, without a fuss.
    const pause = BACK_OFF[Math.min(failures, BACK_OFF.length - 1)] ?? 1000;
    failures += 1;
    if (failures > 1) say('stale', Date.now() + pause);
    await new Promise<void>((go) => {
      wake = go;
      mine.addEventListener('abort', () => go(), { once: true });
      setTimeout(go, failures === 1 ? 250 : pause);
    });
    wake = null;
  }
}

async function readOnce(mine: AbortSignal, isOpen: () => void): Promise<void> {
  const inner = new AbortController();
  mine.addEventListener('abort', () => inner.abort(), { once: true });
  let silence = setTimeout(() => inner.abort(), SILENCE);
  try {
    const answer = await fetch('/api/events', {
      headers: { Accept: 'text/event-stream', 'Last-Event-ID': String(handlers.lastId()) },
      signal: inner.signal,
      cache: 'no-store',
    });
    if (!answer.ok || !answer.body) throw new ApiError(answer.status, 'stream', answer.statusText);
    hear();
    isOpen();
    const reader = new EventReader();
    const body = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await body.read();
      if (done) return;
      clearTimeout(silence);
      silence = setTimeout(() => inner.abort(), SILENCE);
      hearStream();
      channel?.postMessage({ kind: 'beat' } satisfies Message);
      for (const event of reader.feed(value)) await pass(event.kind, event.data);
    }
  } finally {
    clearTimeout(silence);
    inner.abort();
  }
}

async function pass(kind: string, data: string): Promise<void> {
  if (kind === 'change') {
    channel?.postMessage({ kind, data } satisfies Message);
    handlers.change(data);
  } else if (kind === 'reset') {
    channel?.postMessage({ kind } satisfies Message);
    await handlers.reset();
  }
}
