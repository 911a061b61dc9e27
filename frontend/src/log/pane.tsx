// The log of a job: loads the end first, earlier parts on scrolling up, and new lines as they arrive.
import { useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from 'preact/hooks';
import { ApiError, get, query } from '../api';
import { bytes } from '../format';
import { Empty, Failed, Loading } from '../parts/bits';
import { showError, notify } from '../parts/toast';
import { isPhone } from '../theme';
import { type Job, type Match, isActive, isInQueue } from '../types';
import { rowEnd, widthOf } from './controls';
import { Line } from './line';
import { type Line as LogLine, LogWindow } from './window';

const HEIGHT = 18; // pixels of a row, as in log.css
const MARGIN = 20; // rows rendered above and below the visible ones
const MAX_ROWS = 900_000; // browsers limit the height of an element

interface Row {
  line: number;
  from: number;
  to: number;
}

export function LogPane({ job, isFull = false }: { job: Job; isFull?: boolean }) {
  const [attempt, setAttempt] = useState<number | null>(null);
  const [stream, setStream] = useState('stdout');
  const [isWrapped, setWrapped] = useState(isPhone.peek());
  const [isFollowing, setFollowing] = useState(true);
  const [needle, setNeedle] = useState('');
  const [hit, setHit] = useState<number | null>(null);
  const [tally, setTally] = useState(''); // `3 of 17`
  const [error, setError] = useState<ApiError | null>(null);
  const [view, setView] = useState({ top: 0, height: 400, columns: 100 });
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  const box = useRef<HTMLDivElement>(null);
  const probe = useRef<HTMLSpanElement>(null);
  const foundAt = useRef<number[]>([]); // matches visited so far, for “previous”
  const following = useRef(true);
  const isBusy = useRef(false);
  following.current = isFollowing;

  const hasLog = job.attempts > (job.state === 'submitted' ? 1 : 0) || !isInQueue(job);
  const log = useMemo(() => new LogWindow(job.id, { attempt, stream }), [job.id, attempt, stream]);
  const isGrowing = isActive(job) && (attempt === null || attempt === job.attempts);

  // Load the end, then poll for new output.
  useEffect(() => {
    if (!hasLog) return;
    const stop = new AbortController();
    let timer = 0;
    let pause = 700;
    const show = (fresh: boolean) => {
      setError(null);
      pause = fresh ? 700 : Math.min(pause * 1.3, 4000);
      redraw(0);
    };
    const step = async () => {
      try {
        if (!log.version) {
          await log.openTail(stop.signal);
          show(true);
        } else if (!document.hidden && log.isAtEnd && !isBusy.current) {
          show(await log.extend(stop.signal));
        }
      } catch (problem) {
        if (stop.signal.aborted) return;
        if (problem instanceof ApiError) setError(problem);
        pause = 4000;
      }
      if (!stop.signal.aborted && (!log.isOver || isGrowing || !log.version))
        timer = window.setTimeout(step, pause);
    };
    void step();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [log, isGrowing, hasLog]);

  const { lines } = log;
  const columns = isWrapped ? Math.max(20, view.columns) : 0;
  const rows = useMemo(() => layOut(lines, columns), [lines, columns]);

  // While following, keep the end in view.
  useLayoutEffect(() => {
    if (isFollowing && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [isFollowing, rows.length, log.version, view.height]);

  useEffect(() => {
    const node = box.current;
    if (!node) return;
    const measure = () => {
      const width = probe.current?.getBoundingClientRect().width ?? 0;
      setView((old) => ({
        ...old,
        height: node.clientHeight,
        columns: width ? Math.floor((node.clientWidth - 24) / (width / 10)) : 100,
      }));
    };
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(node);
    return () => watch.disconnect();
  }, [log.version > 0]);

  const grow = async (isUp: boolean) => {
    if (isBusy.current) return;
    isBusy.current = true;
    try {
      const top = log.lines[0];
      if (isUp ? await log.extendUp() : await log.extend()) {
        const added = isUp && top ? log.lines.findIndex((line) => line.at >= top.at) : 0;
        const height = layOut(log.lines.slice(0, added), columns).length * HEIGHT;
        redraw(0);
        // Keep the visible rows where they are.
        if (height) requestAnimationFrame(() => box.current?.scrollBy(0, height));
      }
    } catch (problem) {
      showError(problem);
    } finally {
      isBusy.current = false;
    }
  };

  // Without a scroll bar, the user cannot ask for earlier lines.
  useEffect(() => {
    if (log.from > 0 && rows.length * HEIGHT < view.height) void grow(true);
  }, [log.version, view.height]);

  const onScroll = () => {
    const node = box.current!;
    setView((old) => ({ ...old, top: node.scrollTop }));
    const isAtBottom = node.scrollTop + node.clientHeight > node.scrollHeight - HEIGHT;
    if (following.current && !isAtBottom && node.scrollTop < view.top - 2) setFollowing(false);
    else if (!following.current && isAtBottom && log.isAtEnd) setFollowing(true);
    if (node.scrollTop < 30 * HEIGHT && log.from > 0) void grow(true);
    else if (!log.isAtEnd && node.scrollTop + node.clientHeight > node.scrollHeight - 30 * HEIGHT)
      void grow(false);
  };

  /** Load the surroundings of a byte and scroll to its line, `above` of the height from the top. */
  const show = async (byte: number, above: number) => {
    const line = await log.openAt(byte);
    redraw(0);
    requestAnimationFrame(() => {
      const row = layOut(log.lines, columns).findIndex((one) => one.line >= line);
      if (box.current)
        box.current.scrollTop = Math.max(0, row * HEIGHT - box.current.clientHeight * above);
    });
    return line;
  };
  const jump = async (byte: number) => {
    setFollowing(false);
    log.isRaw = false;
    setHit(await show(byte, 1 / 3));
  };
  const toggleRaw = async () => {
    const top = lines[rows[Math.floor(view.top / HEIGHT)]?.line ?? 0]?.at;
    log.isRaw = !log.isRaw;
    setHit(null);
    try {
      if (isFollowing || top === undefined) await log.openTail();
      else await show(top, 0);
    } catch (problem) {
      showError(problem);
    }
    redraw(0);
  };

  const find = async (what: Record<string, string | number>, none: string) => {
    try {
      let at: number | null = null;
      for (let from = Number(what.from ?? 0); ;) {
        const path = `/api/jobs/${job.id}/find${query({ attempt, stream: stream === 'stderr' ? stream : null, ...what, from })}`;
        const found = await get<Match>(path);
        at = found.at;
        setTally(
          !what.q
            ? ''
            : found.total === null
              ? ''
              : found.at === null
                ? `${found.total} matches`
                : `${found.nth} of ${found.total}`,
        );
        // A large log is searched in several requests.
        if (at !== null || found.searched_to >= found.size || found.searched_to <= from) break;
        from = found.searched_to;
      }
      if (at === null) return notify(none);
      foundAt.current.push(at);
      await jump(at);
    } catch (problem) {
      showError(problem);
    }
  };
  const next = () => {
    const last = foundAt.current[foundAt.current.length - 1];
    return find(
      { q: needle, from: last === undefined ? 0 : last + 1 },
      last === undefined ? `“${needle}” not found in this log` : 'No more matches',
    );
  };
  const previous = () => {
    const at = foundAt.current[foundAt.current.length - 2];
    if (at === undefined) return notify('No earlier match');
    foundAt.current.length -= 2;
    return find({ q: needle, from: at }, 'No match');
  };
  const toEnd = async () => {
    setHit(null);
    if (!log.isAtEnd) await log.openTail().catch(showError);
    setFollowing(true);
  };

  const first = Math.max(0, Math.floor(view.top / HEIGHT) - MARGIN);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / HEIGHT) + MARGIN);
  const isEmpty = log.version > 0 && log.size === 0;

  return (
    <div class={isFull ? 'log-pane full' : 'log-pane'}>
      {hasLog && (
        <div class="log-tools" role="group" aria-label="Log">
          {job.attempts > 1 && (
            <label>
              <span class="visually-hidden">Attempt</span>
              <select
                value={attempt ?? job.attempts}
                onChange={(event) => setAttempt(Number(event.currentTarget.value))}
              >
                {Array.from({ length: job.attempts }, (_, i) => (
                  <option key={i} value={i + 1}>
                    attempt {i + 1}
                  </option>
                ))}
              </select>
            </label>
          )}
          {job.stderr && job.stderr !== job.stdout && (
            <label>
              <span class="visually-hidden">Stream</span>
              <select value={stream} onChange={(event) => setStream(event.currentTarget.value)}>
                <option>stdout</option>
                <option>stderr</option>
              </select>
            </label>
          )}
          <form
            role="search"
            onSubmit={(event) => {
              event.preventDefault();
              if (needle) void next();
            }}
          >
            <input
              type="search"
              class="log-search"
              placeholder="Search log"
              aria-label="Search this log"
              value={needle}
              onInput={(event) => {
                setNeedle(event.currentTarget.value);
                setTally('');
                foundAt.current = [];
              }}
              onKeyDown={(event) => {
                if (event.key === 'Enter' && event.shiftKey) {
                  event.preventDefault();
                  void previous();
                }
              }}
            />
            <button disabled={!needle} title="Next match (Enter)" aria-label="Next match">
              ↓
            </button>
            <button
              type="button"
              disabled={!needle}
              title="Previous match (Shift+Enter)"
              aria-label="Previous match"
              onClick={() => void previous()}
            >
              ↑
            </button>
          </form>
          <output class="num dim" aria-live="polite">
            {tally}
          </output>
          <button onClick={() => void find({ error: 1 }, 'No errors found in this log')}>
            First error
          </button>
          <span class="grow" />
          <button aria-pressed={isWrapped} onClick={() => setWrapped(!isWrapped)}>
            Wrap
          </button>
          <button
            aria-pressed={log.isRaw}
            onClick={() => void toggleRaw()}
            title="Show the log as written, with control characters"
          >
            Raw
          </button>
          {isGrowing ? (
            <button
              aria-pressed={isFollowing}
              onClick={() => (isFollowing ? setFollowing(false) : void toEnd())}
            >
              Follow
            </button>
          ) : (
            <button onClick={() => void toEnd()}>Jump to end</button>
          )}
          <a class="button" href={`/api/jobs/${job.id}/log/download${query({ attempt })}`} download>
            Download
          </a>
        </div>
      )}
      {!hasLog ? (
        <Empty title="No log yet">The log starts when the job starts.</Empty>
      ) : error && !log.version ? (
        <Failed error={error} />
      ) : !log.version ? (
        <Loading what="Loading the log" />
      ) : isEmpty ? (
        <Empty title={log.isOver ? 'The log is empty' : 'No output yet'} />
      ) : (
        <div
          class="log"
          style={isFull ? undefined : { height: `${heightFor(rows.length)}px` }}
          ref={box}
          tabIndex={0}
          role="log"
          aria-live="off"
          aria-label={`Log of job ${job.id}`}
          onScroll={onScroll}
        >
          <span class="probe" ref={probe} aria-hidden="true">
            0000000000
          </span>
          <div class="log-all" style={{ height: `${rows.length * HEIGHT}px` }}>
            <div class="log-shown" style={{ transform: `translateY(${first * HEIGHT}px)` }}>
              {rows.slice(first, last).map((row, i) => (
                <div key={first + i} class={row.line === hit ? 'hit' : ''}>
                  <Line line={lines[row.line]!} from={row.from} to={row.to} needle={needle} />
                </div>
              ))}
            </div>
          </div>
        </div>
      )}
      {log.version > 0 && (
        <p class="log-foot dim num">
          {log.from > 0 || !log.isAtEnd ? `bytes ${bytes(log.from)} to ${bytes(log.to)} of ` : ''}
          {bytes(log.size)}
          {isGrowing ? (isFollowing ? ' · following' : ' · growing') : ' · complete'}
        </p>
      )}
    </div>
  );
}

/** The height of the log box: at least 3 rows, at most 21. */
const heightFor = (rows: number) => Math.min(21, Math.max(3, rows + 1)) * HEIGHT;

/** Split lines into rows of equal height; with `columns`, long lines are wrapped to several rows. */
function layOut(lines: LogLine[], columns: number): Row[] {
  const rows: Row[] = [];
  for (let line = Math.max(0, lines.length - MAX_ROWS); line < lines.length; line++) {
    const { text } = lines[line]!;
    if (!columns || widthOf(text) <= columns) {
      rows.push({ line, from: 0, to: text.length });
      continue;
    }
    for (let from = 0; from < text.length;) {
      const to = rowEnd(text, from, columns);
      rows.push({ line, from, to });
      from = to;
    }
  }
  return rows;
}
