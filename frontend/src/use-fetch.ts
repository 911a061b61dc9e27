// Fetch for a screen: keeps the old answer while a newer one is on its way, and drops answers that
// come too late.
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, get } from './api';
import { onChange } from './store';
import { health } from './stream';
import type { Delta } from './types';

export interface Fetched<T> {
  data: T | null;
  error: ApiError | null;
  reload(): void;
}

export function useFetch<T>(path: string | null, everyMs = 0): Fetched<T> {
  const [state, setState] = useState<{ path: string | null; data: T | null; error: ApiError | null }>({ path, data: null, error: null });
  const stop = useRef<AbortController | null>(null);
  const reload = useCallback(() => {
    if (path === null) return;
    stop.current?.abort();
    const mine = (stop.current = new AbortController());
    get<T>(path, mine.signal).then(
      (data) => setState({ path, data, error: null }),
      (error) => {
        if (mine.signal.aborted || !(error instanceof ApiError)) return;
        // An answer that we have is better than none while the server is away.
        setState((old) => ({ path, data: old.path === path ? old.data : null, error }));
      },
    );
  }, [path]);
  useEffect(() => {
    reload();
    return () => stop.current?.abort();
  }, [reload]);
  // What failed because the server was away is asked for once more when it is back.
  const isLive = health.value === 'live';
  useEffect(() => {
    if (!isLive || state.error?.code !== 'unreachable') return;
    setState((old) => ({ ...old, error: null }));
    reload();
  }, [isLive]);
  useEffect(() => {
    if (!everyMs) return;
    const timer = setInterval(() => !document.hidden && reload(), everyMs);
    return () => clearInterval(timer);
  }, [reload, everyMs]);
  const isCurrent = state.path === path;
  return { data: isCurrent ? state.data : null, error: isCurrent ? state.error : null, reload };
}

/** Run `react` when a change concerns us, at most once in `everyMs`, and always for the last one. */
export function useChanges(concerns: (delta: Delta) => boolean, react: () => void, everyMs = 1000): void {
  const latest = useRef({ concerns, react });
  latest.current = { concerns, react };
  useEffect(() => {
    let timer = 0;
    let next = 0;
    const stop = onChange((delta) => {
      if (timer || (delta && !latest.current.concerns(delta))) return;
      timer = window.setTimeout(() => {
        timer = 0;
        next = Date.now() + everyMs;
        latest.current.react();
      }, Math.max(50, next - Date.now()));
    });
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, [everyMs]);
}
