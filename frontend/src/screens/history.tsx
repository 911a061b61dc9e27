// All jobs, newest first. The filters are part of the address.
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, get, query } from '../api';
import { count } from '../format';
import { Empty, Failed, Loading } from '../parts/bits';
import { COLUMNS, JobTable } from '../parts/job-table';
import { BackendOptions } from '../parts/backends';
import { Heading } from '../parts/heading';
import { showError } from '../parts/toast';
import { keptData } from '../places';
import { href, replace, route } from '../route';
import { backends, counts, onChange } from '../store';
import { isPhone } from '../theme';
import { useChanges } from '../use-fetch';
import { ACTIVE, FINAL, type Job, STATES, type State, WAITING } from '../types';

const FIELDS = ['state', 'on', 'name', 'tag', 'sweep', 'q'] as const;
const TEXTS = ['name', 'tag', 'sweep', 'q'] as const;
const LABELS = { name: 'Name', tag: 'Tag', sweep: 'Sweep', q: 'Command or name' };
const c = COLUMNS;
const SHOWN = [c.id, c.state, c.title, c.result, c.gpu, c.time, c.submitted];
const PAGE = 200;
const MAX_SELECTED = 10_000; // the server's limit for one action

const GROUPS: Record<string, readonly State[]> = { active: ACTIVE, waiting: WAITING, final: FINAL };

type Filter = Record<(typeof FIELDS)[number], string>;

function filterOf(from: URLSearchParams): Filter {
  return Object.fromEntries(FIELDS.map((field) => [field, from.get(field) ?? ''])) as Filter;
}

/** Whether a job from the event stream matches the filter. */
function matches(job: Job, filter: Filter): boolean {
  const needle = filter.q.toLowerCase();
  return (
    (!filter.state ||
      filter.state
        .split(',')
        .some((one) => one === job.state || GROUPS[one]?.includes(job.state))) &&
    (!filter.on || job.on === filter.on) &&
    (!filter.name || job.name === filter.name) &&
    (!filter.tag || job.tags.includes(filter.tag)) &&
    (!filter.sweep || job.sweep === filter.sweep) &&
    (!needle || `${job.name ?? ''} ${job.command}`.toLowerCase().includes(needle))
  );
}

interface Loaded {
  key: string;
  jobs: Job[];
  next: number | null;
}

export function HistoryScreen() {
  const filter = filterOf(route.value.query);
  const key = query(filter);
  // After going back, show the rows that were loaded before, so that the scroll position is valid.
  const [loaded, setLoaded] = useState<Loaded | null>(
    (keptData().history as Loaded | undefined) ?? null,
  );
  keptData().history = loaded;
  const [error, setError] = useState<ApiError | null>(null);
  const isBusy = useRef(false);
  const current = useRef({ key, filter });
  current.current = { key, filter };

  const fetchPage = useCallback(async (before: number | null) => {
    if (isBusy.current && before !== null) return;
    isBusy.current = true;
    const requestedKey = current.current.key;
    try {
      const page = await get<{ jobs: Job[]; next: number | null }>(
        `/api/jobs${query({ ...current.current.filter, before, limit: PAGE })}`,
      );
      if (requestedKey !== current.current.key) return;
      setError(null);
      setLoaded((old) => {
        if (before === null || old?.key !== requestedKey)
          return { key: requestedKey, jobs: page.jobs, next: page.next };
        // Scrolling may request the same page twice before the first response is rendered.
        const last = old.jobs.at(-1)?.id ?? Infinity;
        return {
          key: requestedKey,
          jobs: [...old.jobs, ...page.jobs.filter((job) => job.id < last)],
          next: page.next,
        };
      });
    } catch (problem) {
      if (problem instanceof ApiError && requestedKey === current.current.key) setError(problem);
    } finally {
      isBusy.current = false;
    }
  }, []);

  useEffect(() => {
    if (loaded?.key === key) return void refresh();
    const timer = setTimeout(() => void fetchPage(null), loaded ? 200 : 0);
    return () => clearTimeout(timer);
  }, [key]);

  // Refresh the visible rows: the stream reports only jobs that are on the overview.
  const inView = useRef<[number, number]>([0, 0]);
  const refresh = useCallback(async () => {
    const old = latest.current;
    if (
      !old ||
      old.key !== current.current.key ||
      !old.jobs.length ||
      isBusy.current ||
      document.hidden
    )
      return;
    const from = Math.min(inView.current[0], old.jobs.length - 1);
    const top = from === 0 ? null : old.jobs[from]!.id + 1;
    try {
      const page = await get<{ jobs: Job[]; next: number | null }>(
        `/api/jobs${query({ ...current.current.filter, before: top, limit: PAGE })}`,
      );
      setLoaded((now) => {
        if (!now || now.key !== old.key) return now;
        const lowest =
          page.jobs.length && page.next !== null ? page.jobs[page.jobs.length - 1]!.id : 0;
        const above = top === null ? [] : now.jobs.filter((job) => job.id >= top);
        const below = now.jobs.filter((job) => job.id < lowest);
        return {
          ...now,
          jobs: [...above, ...page.jobs, ...below],
          next: below.length || page.next === null ? now.next : page.next,
        };
      });
    } catch {
      // the banner shows that the server is unreachable
    }
  }, []);
  const latest = useRef(loaded);
  latest.current = loaded;
  useChanges(
    () => true,
    () => void (latest.current?.key === current.current.key ? refresh() : fetchPage(null)),
    2000,
  );
  useEffect(
    () =>
      onChange((delta) => {
        if (!delta?.jobs?.length) return;
        setLoaded((old) => {
          if (!old || old.key !== current.current.key) return old;
          const fresh = new Map((delta.jobs ?? []).map((job) => [job.id, job]));
          const newest = old.jobs[0]?.id ?? 0;
          const kept = old.jobs
            .map((job) => fresh.get(job.id) ?? job)
            .filter((job) => !fresh.has(job.id) || matches(job, current.current.filter));
          const added = [...fresh.values()]
            .filter((job) => job.id > newest && matches(job, current.current.filter))
            .sort((a, b) => b.id - a.id);
          return { ...old, jobs: [...added, ...kept] };
        });
      }),
    [],
  );
  const refreshTimer = useRef(0);
  const onRange = useCallback((first: number, last: number) => {
    inView.current = [first, last];
    clearTimeout(refreshTimer.current);
    refreshTimer.current = window.setTimeout(() => void refresh(), 600);
  }, []);

  const shown = loaded?.key === key ? loaded : null;
  const onEnd = useCallback(() => {
    if (shown?.next != null) void fetchPage(shown.next);
  }, [shown?.next, shown?.key]);

  /** Load all matching jobs, up to the limit of one action. */
  const loadAll = async (): Promise<Job[]> => {
    const all = [...(shown?.jobs ?? [])];
    let next = shown?.next ?? null;
    try {
      while (next !== null && all.length < MAX_SELECTED) {
        const page: { jobs: Job[]; next: number | null } = await get(
          `/api/jobs${query({ ...filter, before: next, limit: 1000 })}`,
        );
        all.push(...page.jobs);
        next = page.next;
      }
      if (next !== null)
        showError(`More than ${count(MAX_SELECTED)} jobs match; only the newest are selected`);
      setLoaded({
        key,
        jobs: all.slice(0, MAX_SELECTED),
        next: next ?? (all.length > MAX_SELECTED ? all[MAX_SELECTED - 1]!.id : null),
      });
    } catch (problem) {
      showError(problem);
    }
    return all.slice(0, MAX_SELECTED);
  };

  const set = (field: string, text: string) => {
    const next = new URLSearchParams();
    for (const one of FIELDS) {
      const value = one === field ? text : filter[one];
      if (value) next.set(one, value);
    }
    replace(href(['history'], next));
  };
  const nFilters = FIELDS.filter((field) => filter[field]).length;
  const [isOpen, setOpen] = useState(false); // on a phone the filters are collapsed

  return (
    <>
      <header class="page-head slim">
        <div class="grow">
          <Heading>History</Heading>
        </div>
        {nFilters > 0 && (
          <button class="link" onClick={() => replace('#/history')}>
            Clear filters
          </button>
        )}
        {isPhone.value && (
          <button aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
            Filters{nFilters > 0 && ` (${nFilters})`}
          </button>
        )}
      </header>
      {(isOpen || !isPhone.value) && (
        <form
          class="filters"
          role="search"
          aria-label="Filter jobs"
          onSubmit={(event) => event.preventDefault()}
        >
          <label>
            <span>State</span>
            <select
              value={filter.state}
              onChange={(event) => set('state', event.currentTarget.value)}
            >
              <option value="">
                any ({count(Object.values(counts.value).reduce((a, b) => a + b, 0))})
              </option>
              {Object.keys(GROUPS).map((group) => (
                <option key={group} value={group}>
                  {group}: {GROUPS[group]!.join(', ')}
                </option>
              ))}
              {STATES.map((state) => (
                <option key={state} value={state}>
                  {state} ({count(counts.value[state] ?? 0)})
                </option>
              ))}
            </select>
          </label>
          {(backends.value.length > 0 || filter.on) && (
            <label>
              <span>Runs on</span>
              <select value={filter.on} onChange={(event) => set('on', event.currentTarget.value)}>
                <option value="">any place</option>
                <BackendOptions chosen={filter.on} />
              </select>
            </label>
          )}
          {TEXTS.map((field) => (
            <label key={field} class={field === 'q' ? 'grow' : ''}>
              <span>{LABELS[field]}</span>
              <input
                type="search"
                value={filter[field]}
                placeholder={field === 'q' ? 'train.py' : ''}
                onInput={(event) => set(field, event.currentTarget.value)}
              />
            </label>
          ))}
        </form>
      )}
      {error && !shown ? (
        <Failed error={error} retry={() => void fetchPage(null)} />
      ) : !shown ? (
        <Loading rows={14} />
      ) : !shown.jobs.length ? (
        <Empty title={nFilters ? 'No jobs match' : 'No jobs yet'} />
      ) : (
        <section aria-label="Jobs">
          <JobTable
            label="Jobs"
            jobs={shown.jobs}
            columns={SHOWN}
            onEnd={onEnd}
            onRange={onRange}
            loadAll={shown.next === null ? undefined : loadAll}
          />
          <p class="more dim num">
            {shown.next === null
              ? `${count(shown.jobs.length)} jobs`
              : `${count(shown.jobs.length)} loaded, more below`}
          </p>
        </section>
      )}
    </>
  );
}
