// The rows of the history: loaded in pages, refreshed where they are visible.
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, get } from '../api';
import { count } from '../format';
import { showError } from '../parts/toast';
import { keptData } from '../places';
import { onChange } from '../store';
import type { FailureGroup, HistoryPage, Job, TableJob } from '../types';
import { useChanges } from '../use-fetch';

const PAGE = 200;
const MAX_SELECTED = 10_000; // the server's limit for one action
const UNREAD_MS = 1000;

export interface Loaded {
  key: string;
  jobs: TableJob[];
  next: number | null;
  total: number;
  hasMore: boolean;
  unread: number;
}

export interface HistoryQuery {
  /** Filters and order. */
  selection: URLSearchParams;
  columns: string[];
  /** Whether the newest jobs come first, without a filter that only the server can apply. */
  isPlain: boolean;
  /** Whether a job from the event stream belongs to a plain table. */
  matches(job: Job): boolean;
}

function pathOf(asked: HistoryQuery, more: Record<string, number | null>): string {
  const query = new URLSearchParams(asked.selection);
  for (const name of asked.columns) query.append('column', name);
  for (const [name, value] of Object.entries(more))
    if (value !== null) query.set(name, String(value));
  return `/api/history?${query}`;
}

export function useHistory(asked: HistoryQuery) {
  const key = `${asked.selection}\n${asked.columns.join('\n')}`;
  const isById = !asked.selection.get('sort');
  // After going back, show the rows that were loaded before, so that the scroll position is valid.
  const [loaded, setLoaded] = useState<Loaded | null>(
    (keptData().history as Loaded | undefined) ?? null,
  );
  keptData().history = loaded;
  const [error, setError] = useState<ApiError | null>(null);
  const isBusy = useRef(false);
  const current = useRef({ key, asked, isById, loaded });
  current.current = { key, asked, isById, loaded };

  const page = (from: number | null, limit = PAGE) => {
    const { asked: now, isById: byId } = current.current;
    return get<HistoryPage>(
      pathOf(now, byId ? { before: from, limit } : { offset: from ?? 0, limit }),
    );
  };

  const fetchPage = useCallback(async (from: number | null) => {
    if (isBusy.current && from !== null) return;
    isBusy.current = true;
    const requestedKey = current.current.key;
    try {
      const found = await page(from);
      if (requestedKey !== current.current.key) return;
      setError(null);
      setLoaded((old) => {
        const rest = { next: found.next, hasMore: found.has_more };
        const facts = { key: requestedKey, ...rest, total: found.total, unread: found.unread };
        if (from === null || old?.key !== requestedKey) return { ...facts, jobs: found.jobs };
        // Scrolling may request the same page twice before the first response is rendered.
        const known = new Set(old.jobs.map((job) => job.id));
        return { ...facts, jobs: [...old.jobs, ...found.jobs.filter((job) => !known.has(job.id))] };
      });
    } catch (problem) {
      if (problem instanceof ApiError && requestedKey === current.current.key) setError(problem);
    } finally {
      isBusy.current = false;
    }
  }, []);

  // Refresh the visible rows: the stream reports only jobs that are on the overview.
  const inView = useRef<[number, number]>([0, 0]);
  const refresh = useCallback(async () => {
    const old = current.current.loaded;
    if (!old || old.key !== current.current.key || isBusy.current || document.hidden) return;
    if (!old.jobs.length) return void fetchPage(null);
    const first = Math.min(inView.current[0], old.jobs.length - 1);
    const byId = current.current.isById;
    const top = first === 0 ? null : byId ? old.jobs[first]!.id + 1 : first;
    try {
      const found = await page(top);
      setError(null);
      setLoaded((now) => {
        if (!now || now.key !== old.key) return now;
        const facts = { total: found.total, hasMore: found.has_more, unread: found.unread };
        const fresh = new Set(found.jobs.map((job) => job.id));
        const kept = now.jobs.filter((job) => !fresh.has(job.id));
        let above: TableJob[];
        let below: TableJob[];
        if (byId) {
          const lowest = found.next === null ? 0 : (found.jobs.at(-1)?.id ?? 0);
          above = top === null ? [] : kept.filter((job) => job.id >= top);
          below = kept.filter((job) => job.id < lowest);
        } else {
          above = now.jobs.slice(0, first).filter((job) => !fresh.has(job.id));
          below =
            found.next === null
              ? []
              : now.jobs.slice(first + found.jobs.length).filter((job) => !fresh.has(job.id));
        }
        const jobs = [...above, ...found.jobs, ...below];
        const next = below.length ? now.next : found.next;
        return { ...now, ...facts, jobs, next };
      });
    } catch {
      // the banner shows that the server is unreachable
    }
  }, []);

  useEffect(() => {
    if (loaded?.key === key) return void refresh();
    const timer = setTimeout(() => void fetchPage(null), loaded ? 100 : 0);
    return () => clearTimeout(timer);
  }, [key]);
  useChanges(
    () => true,
    () => void (current.current.loaded?.key === current.current.key ? refresh() : fetchPage(null)),
    2000,
  );
  useEffect(
    () =>
      onChange((delta) => {
        if (!delta?.jobs?.length) return;
        setLoaded((old) => {
          const { asked: now } = current.current;
          if (!old || old.key !== current.current.key) return old;
          const fresh = new Map((delta.jobs ?? []).map((job) => [job.id, job]));
          const jobs = old.jobs.map((job) =>
            fresh.has(job.id) ? { ...fresh.get(job.id)!, values: job.values } : job,
          );
          if (!now.isPlain) return { ...old, jobs };
          const newest = old.jobs[0]?.id ?? 0;
          const added = [...fresh.values()]
            .filter((job) => job.id > newest && now.matches(job))
            .sort((a, b) => b.id - a.id)
            .map((job) => ({ ...job, values: {} }));
          const kept = jobs.filter((job) => !fresh.has(job.id) || now.matches(job));
          return { ...old, jobs: [...added, ...kept] };
        });
      }),
    [],
  );
  // The server reads the metrics of finished jobs in parts; ask again until it has all of them.
  useEffect(() => {
    if (!loaded?.unread || loaded.key !== key) return;
    const timer = setTimeout(() => void fetchPage(null), UNREAD_MS);
    return () => clearTimeout(timer);
  }, [loaded]);
  const refreshTimer = useRef(0);
  const onRange = useCallback((first: number, last: number) => {
    inView.current = [first, last];
    clearTimeout(refreshTimer.current);
    refreshTimer.current = window.setTimeout(() => void refresh(), 600);
  }, []);
  useEffect(() => () => clearTimeout(refreshTimer.current), []);

  const shown = loaded?.key === key ? loaded : null;
  const onEnd = useCallback(() => {
    if (shown?.next != null) void fetchPage(shown.next);
  }, [shown?.next, shown?.key]);

  /** Load all matching jobs, up to the limit of one action. */
  const loadAll = async (): Promise<TableJob[]> => {
    const all = [...(shown?.jobs ?? [])];
    let next = shown?.next ?? null;
    try {
      while (next !== null && all.length < MAX_SELECTED) {
        const found: HistoryPage = await page(next, 1000);
        const known = new Set(all.map((job) => job.id));
        all.push(...found.jobs.filter((job) => !known.has(job.id)));
        next = found.next;
      }
      if (next !== null)
        showError(`More than ${count(MAX_SELECTED)} jobs match; only the first are selected`);
      if (shown) {
        const cut = isById ? all[MAX_SELECTED - 1]?.id : MAX_SELECTED;
        const rest = next ?? (all.length > MAX_SELECTED ? cut! : null);
        setLoaded({ ...shown, jobs: all.slice(0, MAX_SELECTED), next: rest });
      }
    } catch (problem) {
      showError(problem);
    }
    return all.slice(0, MAX_SELECTED);
  };

  // While another page is loading, or a filter has an error, the old rows stay.
  const old = loaded !== null && !shown ? loaded : null;
  return { shown, old, error, onEnd, onRange, loadAll, retry: () => void fetchPage(null) };
}

/** Groups of equal failures among the matching rows. */
export function useFailures(path: string, selection: URLSearchParams): FailureGroup[] {
  const filters = new URLSearchParams(selection);
  filters.delete('sort');
  const key = `${path}?${filters}`;
  const [groups, setGroups] = useState<FailureGroup[]>([]);
  const load = () => {
    get<{ groups: FailureGroup[] }>(key).then(
      (answer) => setGroups(answer.groups),
      () => undefined, // the table shows the error
    );
  };
  useEffect(() => {
    const timer = setTimeout(load, 150);
    return () => clearTimeout(timer);
  }, [key]);
  useChanges(() => true, load, 5000);
  return groups;
}
