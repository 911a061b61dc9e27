// The stream of changes. A browser allows six connections to a server, so all tabs of one browser
// share a stream: the tab that holds a Web Lock reads it and broadcasts every event to the others.
// Hidden tabs release the lock, unless they have to notify about jobs (browser-notifications.ts).
import { signal } from '@preact/signals';
import { ApiError, isSignedIn, whenUnreachable } from './api';
import { EventReader } from './events';

export type Health = 'starting' | 'live' | 'stale';
export const health = signal<Health>('starting');
/** When the server last responded (Date.now()); it sends at least a ping every 15 seconds. */
export const lastContactAt = signal(Date.now());
/** When the next connection is tried (Date.now()), while stale. */
export const retryAt = signal(0);

const SILENCE = 40_000; // ms without data until the stream counts as dead; the server pings every 15 s
const BACK_OFF = [500, 1000, 2000, 4000, 8000, 15_000];

interface Handlers {
  change(data: string): void;
  /** Events may have been missed: fetch everything again. */
  reset(): Promise<void>;
  lastId(): number;
}

type Message =
  | { kind: 'change'; data: string }
  | { kind: 'reset' }
  | { kind: 'beat' }
  | { kind: 'health'; health: Health; retryAt: number };

let handlers: Handlers;
let stop: AbortController | null = null;
let wake: (() => void) | null = null;
let reads = false;
let staysWhenHidden = () => false;
const isShared = 'locks' in navigator && 'BroadcastChannel' in self; // locks need localhost or https
const channel = isShared ? new BroadcastChannel('stoker') : null;

export function start(given: Handlers): void {
  handlers = given;
  whenUnreachable(markStale);
  channel?.addEventListener('message', (event: MessageEvent<Message>) => {
    if (stop === null || stop.signal.aborted) return;
    const message = event.data;
    if (message.kind !== 'health') recordStreamContact();
    else if (message.health === 'live') recordContact();
    if (message.kind === 'change') handlers.change(message.data);
    else if (message.kind === 'reset') void handlers.reset().catch(() => undefined);
    else if (message.kind === 'health') setHealth(message.health, message.retryAt, false);
  });
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) resume();
    else if (!staysWhenHidden()) pause();
  });
  addEventListener('pagehide', pause);
  addEventListener('pageshow', (event) => event.persisted && resume());
  addEventListener('online', retryNow);
  if (!document.hidden || staysWhenHidden()) resume();
}

/** Let hidden tabs go on while `isNeeded` returns true. */
export function keepReading(isNeeded: () => boolean): void {
  staysWhenHidden = isNeeded;
}

/** Whether this tab is the one that reads the stream. */
export const isReading = () => reads;

export function retryNow(): void {
  wake?.();
}

/** Record that the server responded just now. */
export function recordContact(): void {
  lastContactAt.value = Date.now();
}

/** Data from the stream proves that the server is reachable, even if a request failed. */
function recordStreamContact(): void {
  recordContact();
  if (health.value === 'stale') setHealth('live', 0, false);
}

/** Whether the “server does not answer” banner already shows this error. */
export const isInBanner = (error: unknown) =>
  error instanceof ApiError && error.code === 'unreachable' && health.value === 'stale';

/** A request could not reach the server, before the stream noticed. */
function markStale(): void {
  if (health.value === 'live') setHealth('stale', 0, false);
}

function pause(): void {
  stop?.abort();
  stop = null;
}

function resume(): void {
  if (stop !== null) return;
  stop = new AbortController();
  const paused = stop.signal;
  if (!isShared) {
    void read(paused);
    return;
  }
  void navigator.locks
    .request('stoker-stream', { ifAvailable: true }, async (lock) => {
      if (lock) await read(paused);
    })
    .then(() => {
      if (paused.aborted) return;
      // Another tab reads the stream. This tab may have missed its messages while it was hidden.
      if (health.value === 'starting') setHealth('live', 0, false);
      else void handlers.reset().catch(() => undefined);
      return navigator.locks.request('stoker-stream', { signal: paused }, () => read(paused));
    })
    .catch(() => undefined);
}

function setHealth(now: Health, at = 0, isBroadcast = true): void {
  health.value = now;
  retryAt.value = at;
  if (isBroadcast)
    channel?.postMessage({ kind: 'health', health: now, retryAt: at } satisfies Message);
}

async function read(paused: AbortSignal): Promise<void> {
  reads = true;
  try {
    await readUntilPaused(paused);
  } finally {
    reads = false;
  }
}

async function readUntilPaused(paused: AbortSignal): Promise<void> {
  for (let failures = 0; !paused.aborted;) {
    try {
      await readOnce(paused, () => {
        failures = 0;
        setHealth('live');
      });
    } catch (error) {
      if (paused.aborted) return;
      if (error instanceof ApiError && error.status === 401) {
        isSignedIn.value = false;
        return;
      }
    }
    if (paused.aborted) return;
    // Reconnect at once, and without a banner, when the server closes the stream normally.
    const pause = BACK_OFF[Math.min(failures, BACK_OFF.length - 1)] ?? 1000;
    failures += 1;
    if (failures > 1) setHealth('stale', Date.now() + pause);
    await new Promise<void>((go) => {
      wake = go;
      paused.addEventListener('abort', () => go(), { once: true });
      setTimeout(go, failures === 1 ? 250 : pause);
    });
    wake = null;
  }
}

async function readOnce(paused: AbortSignal, onOpen: () => void): Promise<void> {
  const inner = new AbortController();
  paused.addEventListener('abort', () => inner.abort(), { once: true });
  let silence = setTimeout(() => inner.abort(), SILENCE);
  try {
    const response = await fetch('/api/events', {
      headers: { Accept: 'text/event-stream', 'Last-Event-ID': String(handlers.lastId()) },
      signal: inner.signal,
      cache: 'no-store',
    });
    if (!response.ok || !response.body)
      throw new ApiError(response.status, 'stream', response.statusText);
    recordContact();
    onOpen();
    const reader = new EventReader();
    const body = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await body.read();
      if (done) return;
      clearTimeout(silence);
      silence = setTimeout(() => inner.abort(), SILENCE);
      recordStreamContact();
      channel?.postMessage({ kind: 'beat' } satisfies Message);
      for (const event of reader.feed(value)) await dispatch(event.kind, event.data);
    }
  } finally {
    clearTimeout(silence);
    inner.abort();
  }
}

async function dispatch(kind: string, data: string): Promise<void> {
  if (kind === 'change') {
    channel?.postMessage({ kind, data } satisfies Message);
    handlers.change(data);
  } else if (kind === 'reset') {
    channel?.postMessage({ kind } satisfies Message);
    await handlers.reset();
  }
}
