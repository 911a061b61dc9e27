"""`stoker ls`: list jobs as a table."""

from __future__ import annotations

import time

from stoker.cli.open_queue import open_queue
from stoker.cli.output import notice, plural, print_json, table
from stoker.client import views
from stoker.client.queue import Queue
from stoker.core.formats.command_line import Option, Parsed, Verb, count
from stoker.core.formats.durations import format_duration
from stoker.core.formats.selectors import parse_selector
from stoker.core.formats.shell_words import display
from stoker.core.states import ACTIVE, FINAL, STATES
from stoker.daemon.status import daemon_pid
from stoker.errors import NotFound, UsageError
from stoker.store import job_queries, meta
from stoker.store.job_queries import JobRow

# Counting a million jobs takes longer than showing fifty of them.
COUNT_LIMIT = 20_000
DEFAULT_LIMIT = 50
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stoker.core.policy.forecast_error import StartForecast

VERB = Verb(
        "ls",
        "ls [OPTIONS] [JOB...]",
        "List jobs: all unfinished ones and the latest finished ones, or those that JOB selects.",
        (
            Option("-s --state", "only jobs in this state (or waiting, active, final, all)",
                   "STATE", many=True),
            Option("-T --tag", "only jobs with this tag", "TAG"),
            Option("--name", "only jobs with this name", "NAME"),
            Option("--on", "only jobs on this backend; local is this host", "NAME"),
            Option("-n --limit", "list at most N jobs (default: 50)", "N", count),
            Option("-w --watch", "refresh until Ctrl-C; with --json, print a line for each change"),
        ),
        (
            ("stoker ls", ""),
            ("stoker ls --state failed --json | jq '.jobs[].id'", ""),
            ("stoker ls 10-20", ""),
        ),
        """The text in brackets before a command says how the job ended, or what it waits for
(`[after 7]`, `[begins 15:40]`, `[retry in 20s]`, `[draining]`); `stoker why` says more. In the GPU
column, (2) means that a waiting job requests two GPUs, and `lab n2:0,1` that a job runs on node n2
of the backend `lab`. `stoker help selectors` explains JOB.""",
        words="jobs",
    )  # fmt: skip


def run(parsed: Parsed) -> int:
    queue = open_queue()
    if parsed["watch"]:
        from stoker.cli.verbs.watch import watch

        return watch(queue, lambda room: _watched(queue, parsed, room),
                     (lambda: _as_json(queue, parsed)) if parsed["json"] else None)  # fmt: skip
    if parsed["json"]:
        print_json(**_as_json(queue, parsed, has_starts=True))
        return 0
    counts = job_queries.counts_up_to(queue.db, COUNT_LIMIT)
    print(render(queue, parsed, counts))
    text = no_daemon(queue, counts)
    if text:
        notice(text)
    return 0


def _as_json(queue: Queue, parsed: Parsed, *, has_starts: bool = False) -> dict[str, Any]:
    """`has_starts`: with the forecasts, which change all the time."""
    rows = rows_for(queue, parsed)
    found: dict[str, Any] = {
        "jobs": [views.job_json(queue.db, queue.settings, row) for row in rows],
        "counts": job_queries.counts(queue.db),
    }
    if has_starts:
        likely = starts(queue, rows)
        found["starts"] = {
            row.id: {
                "starts_in": round(likely[row.id].seconds, 1),
                "start_error": likely[row.id].error,
            }
            for row in rows
            if row.id in likely
        }
    return found


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
    return "no daemon is running; start it with `stoker daemon start`"


def rows_for(queue: Queue, parsed: Parsed, fitting: int | None = None) -> list[JobRow]:
    limit = parsed["limit"]
    if limit is None:
        limit = DEFAULT_LIMIT if fitting is None else min(DEFAULT_LIMIT, fitting)
    states: tuple[str, ...] | None = None
    for word in parsed["state"] or ():
        chosen = parse_selector(word).states
        if chosen is None:
            raise UsageError(f"`{word}` is not a state", f"states: {', '.join(STATES)}")
        states = (*(states or ()), *chosen)
    if parsed.words:
        return _chosen(queue, parsed, states, limit)
    return views.listed_jobs(
        queue.db, states=states, limit=limit, tag=parsed["tag"], name=parsed["name"],
        backend=_backend(parsed),
    )  # fmt: skip


def _chosen(
    queue: Queue, parsed: Parsed, states: tuple[str, ...] | None, limit: int
) -> list[JobRow]:
    """The newest jobs among those that words select and options do not exclude."""
    tag, name = parsed["tag"], parsed["name"]
    rows: list[JobRow] = []
    for job in reversed(_select(queue, parsed.words)):
        if len(rows) == limit:
            break
        row = job_queries.job(queue.db, job)
        if (
            (states is None or row.state in states)
            and (name is None or row.name == name)
            and _backend(parsed) in (None, row.request.backend)
            and (tag is None or tag in job_queries.tags(queue.db, row.id))
        ):
            rows.append(row)
    return rows[::-1]


def _backend(parsed: Parsed) -> str | None:
    """The backend of `--on` as in requests: "" for this host, None without the option."""
    return "" if parsed["on"] == "local" else parsed["on"]


def _select(queue: Queue, words: list[str]) -> list[int]:
    """The selected ids. The name of a sweep selects its jobs, like `sweep:NAME`."""
    from stoker.store.sweeps import by_name

    ids: set[int] = set()
    for word in words:
        try:
            ids.update(queue.select([word]))
        except NotFound:
            if by_name(queue.db, word) is None:
                raise
            ids.update(queue.select([f"sweep:{word}"]))
    return sorted(ids)


def render(queue: Queue, parsed: Parsed, counts: dict[str, int], fitting: int | None = None) -> str:
    rows = rows_for(queue, parsed, fitting)
    if not rows:
        return "no jobs" if not counts else f"no matching jobs ({summary(counts)})"
    text = jobs_table(queue, rows)
    hidden = sum(counts.values()) - len(rows)
    if hidden > 0 and not parsed.words:
        is_more = any(count >= COUNT_LIMIT for count in counts.values())
        jobs = f"{hidden}+ jobs" if is_more else plural(hidden, "job")
        text += f"\n{summary(counts)}; {jobs} not shown (see -n, --state)"
    return text


def starts(queue: Queue, rows: list[JobRow]) -> dict[int, StartForecast]:
    """When waiting jobs likely start, by job id.

    Returns early if no job waits, or if no running job has a time limit or a command profile.
    """
    if not any(row.state == "queued" for row in rows):
        return {}
    if not job_queries.has_known_end(queue.db):
        return {}
    from stoker.client.wait_reasons import likely_starts

    return likely_starts(queue.db, queue.settings)


def jobs_table(queue: Queue, rows: list[JobRow]) -> str:
    now, likely = time.time(), starts(queue, rows)
    draining = any(row.state == "queued" for row in rows) and meta.is_draining(queue.db)
    lines = []
    for row in rows:
        words = views.result_words(row, queue.db)
        words = words or views.waiting_words(queue.db, row, now, bool(draining))
        if row.state == "submitted" and not words:
            from stoker.client.backend_reasons import submitted_words

            words = submitted_words(queue.db, row)
        words = (
            words or views.process_words(queue.db, row) or views.progress(queue.settings, row) or ""
        )
        lines.append(_cells(row, now, likely.get(row.id), words))
    return table(("ID", "STATE", "TIME", "GPU", "NAME", "COMMAND"), lines, state=1)


def _cells(row: JobRow, now: float, start: StartForecast | None, words: str) -> tuple[object, ...]:
    command = display(row.argv, row.shell)
    return (
        row.id,
        row.state,
        elapsed(row, now) if start is None else start.words(),
        views.place_words(row),
        row.name or "-",
        f"[{words}] {command}" if words else command,
    )


def elapsed(row: JobRow, now: float) -> str:
    if row.started_at is None or row.state in ("held", "queued"):
        return "-"
    end = row.ended_at if row.state in FINAL and row.ended_at is not None else now
    return format_duration(end - row.started_at)


def summary(counts: dict[str, int]) -> str:
    """`2 running, 20000+ queued`: a `+` marks counts that stopped at COUNT_LIMIT."""
    return ", ".join(
        f"{counts[state]}{'+' if counts[state] >= COUNT_LIMIT else ''} {state}"
        for state in STATES
        if counts.get(state)
    )
