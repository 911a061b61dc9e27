"""`stoker ls`: list jobs as a table."""

from __future__ import annotations

import time

from stoker.cli.open_queue import open_queue
from stoker.cli.output import notice, plural, print_json, table
from stoker.client.queue import Queue
from stoker.client.views import job as views
from stoker.client.views.job_filter import select_or_sweep
from stoker.engine.daemon.status import daemon_pid
from stoker.engine.store import job_queries, meta
from stoker.engine.store.job_queries import JobRow
from stoker.engine.store.job_table import NEWEST_FIRST, Filters, JobTable, unfinished_and_latest
from stoker.errors import UsageError
from stoker.features.notes import store as notes
from stoker.states import ACTIVE, FINAL, STATES
from stoker.text.command_line import Option, Parsed, Verb, count
from stoker.text.commands.shell_words import display
from stoker.text.durations import format_duration
from stoker.text.selectors import parse_selector

# Counting a million jobs takes longer than showing fifty of them.
COUNT_LIMIT = 20_000
DEFAULT_LIMIT = 50
_CUT = "only {} of the matching jobs are listed; -n N lists more"
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stoker.client.views.why import QueueView

VERB = Verb(
    "ls",
    "ls [OPTIONS] [JOB...]",
    "List jobs: all unfinished ones and the latest finished ones, or those that JOB selects.",
    (
        Option(
            "-s --state",
            "only jobs in this state (or waiting, active, final, all)",
            "STATE",
            many=True,
        ),
        Option("-T --tag", "only jobs with this tag", "TAG"),
        Option("--starred", "only jobs with a star"),
        Option("--name", "only jobs with this name", "NAME", completes="names"),
        Option("--on", "only jobs on this backend; local is this host", "NAME"),
        Option("-n --limit", "list at most N jobs (default: 50)", "N", count),
        Option(
            "--where",
            'only jobs that match: \'state == "failed" and duration > "1h"\'',
            "EXPR",
            many=True,
        ),
        Option(
            "--sort", "sort by columns: -duration (largest first), name,-metric.loss", "COLUMNS"
        ),
        Option("--columns", "show these columns: id,state,cause,metric.loss", "COLUMNS"),
        Option("-w --watch", "refresh until Ctrl-C; with --json, print a line for each change"),
    ),
    (
        ("stoker ls", ""),
        ("stoker ls --state failed --json | jq '.jobs[].id'", ""),
        ("stoker ls 10-20", ""),
        ('stoker ls --where \'cause == "gpu_oom" and submitted > "2d ago"\'', ""),
        ("stoker ls --where 'metric.loss < 0.3' --sort metric.loss", ""),
    ),
    """The text in brackets before a command says how the job ended, what it waits for
(`[behind 4 jobs · GPU 2 reserved for 25]`, `[after 7]`, `[begins 15:40]`, `[retry in 20s]`; `stoker
why` says more), or how far it is: the progress and the newest metric that it reports, and when it
likely ends (ETA). In the GPU column, (2) means that a waiting job requests two GPUs, and `lab
n2:0,1` that a job runs on node n2 of the backend `lab`. In the NAME column, `7_3` is index 3 of
array 7, and `*` marks jobs with a star. `stoker help selectors` explains JOB. `--where` and
`--sort` search all jobs; docs/tables.md lists the columns. Metrics are those of finished jobs.""",
    words="jobs",
)


def run(parsed: Parsed) -> int:
    queue = open_queue()
    if parsed["watch"]:
        from stoker.cli.verbs.watch import watch

        return watch(
            queue,
            lambda room: _watched(queue, parsed, room),
            (lambda: _as_json(queue, parsed)) if parsed["json"] else None,
        )
    if parsed["json"]:
        found = _as_json(queue, parsed, has_starts=True)
        found["truncated"] = is_cut = _is_cut(queue, parsed, len(found["jobs"]))
        print_json(**found)
        if is_cut:
            notice(_CUT.format(len(found["jobs"])))
        return 0
    counts = job_queries.counts_up_to(queue.db, COUNT_LIMIT)
    print(render(queue, parsed, counts))
    text = no_daemon(queue, counts)
    if text:
        notice(text)
    return 0


def _as_json(queue: Queue, parsed: Parsed, *, has_starts: bool = False) -> dict[str, Any]:
    """`has_starts`: with forecasts and progress, which change all the time."""
    rows = rows_for(queue, parsed)
    found: dict[str, Any] = {
        "jobs": _with_values(
            queue, parsed, [views.job_json(queue.db, queue.settings, row) for row in rows]
        ),
        "counts": job_queries.counts(queue.db),
    }
    if has_starts:
        view = queue_view(queue, rows)
        likely = {} if view is None else view.starts()
        found["waits"] = waits_json(queue, rows, view)
        found["starts"] = {
            row.id: {"starts_in": round(likely[row.id], 1)} for row in rows if row.id in likely
        }
        found["progress"] = progress_json(queue, rows)
    return found


def _with_values(queue: Queue, parsed: Parsed, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With `--columns`, each job has their values as `values`."""
    if parsed["columns"] is None:
        return jobs
    from stoker.cli.job_columns import values_of

    values = values_of(queue, parsed["columns"], [job["id"] for job in jobs])
    return [{**job, "values": values[job["id"]]} for job in jobs]


def _watched(queue: Queue, parsed: Parsed, room: int | None) -> str:
    """The list for `--watch`: as many jobs as fit on the terminal with header and summary."""
    counts = job_queries.counts_up_to(queue.db, COUNT_LIMIT)
    notice = no_daemon(queue, counts)
    fitting = None if room is None else max(1, room - 2 - (1 if notice else 0))
    text = render(queue, parsed, counts, fitting)
    return f"{text}\n{notice}" if notice else text


def no_daemon(queue: Queue, counts: dict[str, int]) -> str | None:
    """A notice if there are unfinished jobs but no daemon; otherwise None."""
    has_work = any(counts.get(state) for state in ("queued", *ACTIVE))
    if not has_work or daemon_pid(queue.settings.state_dir) is not None:
        return None
    return views.NO_DAEMON


def _is_cut(queue: Queue, parsed: Parsed, listed: int) -> bool:
    """Whether more jobs match than the limit, which is also the number of those that are listed."""
    limit = DEFAULT_LIMIT if parsed["limit"] is None else int(parsed["limit"])
    return listed >= limit and len(rows_for(queue, parsed, limit=limit + 1)) > limit


def rows_for(
    queue: Queue, parsed: Parsed, fitting: int | None = None, limit: int | None = None
) -> list[JobRow]:
    limit = parsed["limit"] if limit is None else limit
    if limit is None:
        limit = DEFAULT_LIMIT if fitting is None else min(DEFAULT_LIMIT, fitting)
    states: tuple[str, ...] | None = None
    for word in parsed["state"] or ():
        chosen = parse_selector(word).states
        if chosen is None:
            raise UsageError(f"`{word}` is not a state", f"states: {', '.join(STATES)}")
        states = (*(states or ()), *chosen)
    filters = Filters(
        states=states,
        tag=parsed["tag"],
        name=parsed["name"],
        backend="" if parsed["on"] == "local" else parsed["on"],
        starred=bool(parsed["starred"]),
        among=select_or_sweep(queue, parsed.words) if parsed.words else None,
    )
    db = queue.db
    is_all = states is None and not parsed.words
    selected, order = JobTable(db, filters), NEWEST_FIRST
    if parsed["where"] or parsed["sort"] is not None:
        from stoker.cli.job_columns import filtered_table

        is_all = False
        selected, order = filtered_table(queue, filters, parsed["where"] or (), parsed["sort"])
    with db.reading():
        if is_all:
            ids = unfinished_and_latest(db, filters, limit)
        else:
            ids = selected.ids(order, limit=limit)
        return job_queries.jobs(db, ids if parsed["sort"] is not None else sorted(ids))


def render(queue: Queue, parsed: Parsed, counts: dict[str, int], fitting: int | None = None) -> str:
    rows = rows_for(queue, parsed, fitting)
    if not rows:
        return "no jobs" if not counts else f"no matching jobs ({summary(counts)})"
    if parsed["columns"] is not None:
        from stoker.cli.job_columns import columns_table

        text = columns_table(queue, parsed["columns"], rows)
    else:
        text = jobs_table(queue, rows)
    if (parsed.words or parsed["where"]) and fitting is None and _is_cut(queue, parsed, len(rows)):
        return f"{text}\n{_CUT.format(len(rows))}"
    hidden = sum(counts.values()) - len(rows)
    if hidden > 0 and not (parsed.words or parsed["where"]):
        is_more = any(count >= COUNT_LIMIT for count in counts.values())
        jobs = f"{hidden}+ jobs" if is_more else plural(hidden, "job")
        text += f"\n{summary(counts)}; {jobs} not shown (see -n, --state)"
    return text


def queue_view(queue: Queue, rows: list[JobRow]) -> QueueView | None:
    """Why jobs of this host wait and when they likely start; None if none of `rows` is queued."""
    if not any(row.state == "queued" and not row.request.backend for row in rows):
        return None
    from stoker.client.views.why import LISTED_DEPTH, QueueView

    return QueueView(queue.db, queue.settings, LISTED_DEPTH)


def waits_json(queue: Queue, rows: list[JobRow], view: QueueView | None) -> dict[int, str]:
    """Why each waiting job waits, in a few words."""
    now, draining = time.time(), _is_draining(queue, rows)
    words = {row.id: _waiting_words(queue, row, now, view, draining) for row in rows}
    return {row.id: words[row.id] for row in rows if row.state == "queued" and words[row.id]}


def _is_draining(queue: Queue, rows: list[JobRow]) -> bool:
    return any(row.state == "queued" for row in rows) and meta.is_draining(queue.db)


def _waiting_words(
    queue: Queue, row: JobRow, now: float, view: QueueView | None, draining: bool
) -> str:
    """What a queued job waits for: `after 7`, or `behind 4 jobs · GPU 2 reserved for 25`."""
    words = views.waiting_words(queue.db, row, now, draining)
    if words or row.state != "queued":
        return words
    if row.request.backend or view is None:
        return ""
    return view.short(row)


def jobs_table(queue: Queue, rows: list[JobRow], view: QueueView | None = None) -> str:
    """`view`: the present result of `queue_view`, to avoid loading it again."""
    now, view = time.time(), view or queue_view(queue, rows)
    likely = {} if view is None else view.starts()
    starred = notes.starred(queue.db, notes.JOB, [row.id for row in rows])
    draining = _is_draining(queue, rows)
    lines = []
    for row in rows:
        words = views.result_words(row, queue.db)
        words = words or _waiting_words(queue, row, now, view, draining)
        if row.request.backend and not words:
            from stoker.features.backends.backend_reasons import unstarted_words

            words = unstarted_words(queue.db, row)
        words = words or views.process_words(queue.db, row) or progress_words(queue, row, now)
        lines.append(_cells(row, now, likely.get(row.id), words, row.id in starred))
    return table(("ID", "STATE", "TIME", "GPU", "NAME", "COMMAND"), lines, state=1)


def progress_words(queue: Queue, row: JobRow, now: float) -> str:
    """`step 120/1000 (12%), loss 0.31, ETA 12m30s`; "" if the job does not run."""
    if row.state not in ACTIVE:
        return ""
    from stoker.client.views.job_progress import job_progress

    known = job_progress(queue.db, queue.settings, row, now)
    return "" if known is None else known.words()


def progress_json(queue: Queue, rows: list[JobRow]) -> dict[int, dict[str, Any]]:
    """The progress of the running jobs among `rows`, by job."""
    if not any(row.state in ACTIVE for row in rows):
        return {}
    from stoker.client.views.job_progress import job_progress

    known = {row.id: job_progress(queue.db, queue.settings, row) for row in rows}
    return {job: one.as_json() for job, one in known.items() if one is not None}


def _cells(
    row: JobRow, now: float, starts_in: float | None, words: str, is_starred: bool
) -> tuple[object, ...]:
    command = display(row.argv, row.shell)
    return (
        row.id,
        row.state,
        elapsed(row, now) if starts_in is None else f"in {format_duration(starts_in)}",
        views.place_words(row),
        _name(row, is_starred),
        f"[{words}] {command}" if words else command,
    )


def _name(row: JobRow, is_starred: bool) -> str:
    """The name, and the index in an array: `train 7_3`; `* train` with a star."""
    parts = ("*" if is_starred else "", row.name or "", views.array_words(row))
    return " ".join(part for part in parts if part) or "-"


def elapsed(row: JobRow, now: float) -> str:
    if row.started_at is None or row.state in ("held", "queued"):
        return "-"
    if row.is_interrupted:
        return "-"  # its end is not known
    end = row.ended_at if row.state in FINAL and row.ended_at is not None else now
    return format_duration(end - row.started_at)


def summary(counts: dict[str, int]) -> str:
    """`2 running, 20000+ queued`: a `+` marks counts that stopped at COUNT_LIMIT."""
    return ", ".join(
        f"{counts[state]}{'+' if counts[state] >= COUNT_LIMIT else ''} {state}"
        for state in STATES
        if counts.get(state)
    )
