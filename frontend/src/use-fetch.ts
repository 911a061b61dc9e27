// Data fetching for screens: keeps the old response while a new one is loading, and drops responses
// that are out of date.
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
  const [state, setState] = useState<{
    path: string | null;
    data: T | null;
    error: ApiError | null;
  }>({ path, data: null, error: null });
  const stop = useRef<AbortController | null>(null);
  const reload = useCallback(() => {
    if (path === null) return;
    stop.current?.abort();
    const controller = (stop.current = new AbortController());
    get<T>(path, controller.signal).then(
      (data) => setState({ path, data, error: null }),
      (error) => {
        if (controller.signal.aborted || !(error instanceof ApiError)) return;
        // Keep showing the old data while the server is unreachable.
        setState((old) => ({ path, data: old.path === path ? old.data : null, error }));
      },
    );
  }, [path]);
  useEffect(() => {
    reload();
    return () => stop.current?.abort();
  }, [reload]);
  // Retry once the server is reachable again.
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

/** Run `react` after changes for which `concerns` is true: at most once per `everyMs`, and always after
 * the last change. */
export function useChanges(
  concerns: (delta: Delta) => boolean,
  react: () => void,
  everyMs = 1000,
): void {
  const latest = useRef({ concerns, react });
  latest.current = { concerns, react };
  useEffect(() => {
    let timer = 0;
    let next = 0;
    const stop = onChange((delta) => {
      if (timer || (delta && !latest.current.concerns(delta))) return;
      timer = window.setTimeout(
        () => {
          timer = 0;
          next = Date.now() + everyMs;
          latest.current.react();
        },
        Math.max(50, next - Date.now()),
      );
    });
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, [everyMs]);
}
