"""`stoker ls`: jobs as a table."""

from __future__ import annotations

import time

from stoker import board
from stoker.api import Queue
from stoker.cli.options import Option, Parsed, Verb, count
from stoker.cli.output import plural, print_json, table
from stoker.core.commands import display
from stoker.core.durations import format_duration
from stoker.core.selectors import parse_selector
from stoker.core.states import FINAL, STATES
from stoker.errors import UsageError
from stoker.store import find
from stoker.store.find import JobRow

# Counting a million jobs takes longer than showing fifty of them.
COUNT_LIMIT = 20_000

VERBS = {
    "ls": Verb(
        "ls",
        "ls [OPTIONS] [JOB...]",
        "List jobs: what runs and waits, then what ended last. Words select jobs.",
        (
            Option("-s --state", "only this state (or waiting, active, final, all)", "STATE",
                   many=True),
            Option("-T --tag", "only jobs with this tag", "TAG"),
            Option("--name", "only jobs of this name", "NAME"),
            Option("-n --limit", "at most so many (default 50)", "N", count),
            Option("-w --watch", "keep showing it; Ctrl-C ends"),
        ),
        (
            ("stoker ls", ""),
            ("stoker ls --state failed --json | jq '.jobs[].id'", ""),
            ("stoker ls 10-20", ""),
        ),
        "`stoker help selectors` says how to point at jobs.",
        words="jobs",
    )
}  # fmt: skip


def run(name: str, parsed: Parsed) -> int:
    queue = Queue()
    if parsed["watch"]:
        from stoker.cli.watch import watch

        return watch(queue, lambda: render(queue, parsed))
    if parsed["json"]:
        rows = rows_for(queue, parsed)
        print_json(
            jobs=[board.job_json(queue.db, queue.settings, row) for row in rows],
            counts=find.counts(queue.db),
        )
        return 0
    print(render(queue, parsed))
    return 0


def rows_for(queue: Queue, parsed: Parsed) -> list[JobRow]:
    limit = 50 if parsed["limit"] is None else parsed["limit"]
    states: tuple[str, ...] | None = None
    for word in parsed["state"] or ():
        chosen = parse_selector(word).states
        if chosen is None:
            raise UsageError(f"`{word}` is no state", f"states: {', '.join(STATES)}")
        states = (*(states or ()), *chosen)
    if parsed.words:
        return _chosen(queue, parsed, states, limit)
    return board.page(queue.db, states=states, limit=limit, tag=parsed["tag"], name=parsed["name"])


def _chosen(
    queue: Queue, parsed: Parsed, states: tuple[str, ...] | None, limit: int
) -> list[JobRow]:
    """The jobs that words select, less those that the flags leave out; the newest of them."""
    tag, name = parsed["tag"], parsed["name"]
    rows: list[JobRow] = []
    for job in reversed(queue.select(parsed.words)):
        if len(rows) == limit:
            break
        row = find.job(queue.db, job)
        if (
            (states is None or row.state in states)
            and (name is None or row.name == name)
            and (tag is None or tag in find.tags(queue.db, row.id))
        ):
            rows.append(row)
    return rows[::-1]


def render(queue: Queue, parsed: Parsed) -> str:
    rows = rows_for(queue, parsed)
    counts = find.counts_up_to(queue.db, COUNT_LIMIT)
    if not rows:
        return "no jobs" if not counts else f"no such jobs ({summary(counts)})"
    text = jobs_table(rows, time.time(), starts(queue, rows))
    hidden = sum(counts.values()) - len(rows)
    if hidden > 0 and not parsed.words:
        text += f"\n{summary(counts)}; {plural(hidden, 'job')} not shown (-n, --state)"
    return text


def starts(queue: Queue, rows: list[JobRow]) -> dict[int, float]:
    """Seconds until waiting jobs are likely to start, where that can be told.

    Costs nothing where nobody waits, or where no running job has a limit or a past.
    """
    if not any(row.state == "queued" for row in rows):
        return {}
    if not find.has_known_end(queue.db):
        return {}
    from stoker.waiting import likely_starts

    return likely_starts(queue.db, queue.settings)


def jobs_table(rows: list[JobRow], now: float, starts: dict[int, float] | None = None) -> str:
    return table(
        ("ID", "STATE", "TIME", "GPU", "NAME", "COMMAND"),
        [_cells(row, now, (starts or {}).get(row.id)) for row in rows],
        state=1,
    )


def _cells(row: JobRow, now: float, start: float | None) -> tuple[object, ...]:
    words = board.result_words(row)
    command = display(row.argv, row.shell)
    return (
        row.id,
        row.state,
        elapsed(row, now) if start is None else f"in {format_duration(start)}",
        ",".join(map(str, row.devices)) or (f"({row.gpus})" if row.gpus else "-"),
        row.name or "-",
        f"[{words}] {command}" if words else command,
    )


def elapsed(row: JobRow, now: float) -> str:
    if row.started_at is None or row.state in ("held", "queued"):
        return "-"
    end = row.ended_at if row.state in FINAL and row.ended_at is not None else now
    return format_duration(end - row.started_at)


def summary(counts: dict[str, int]) -> str:
    """Counts in words; those that were not counted to their end get a +."""
    return ", ".join(
        f"{counts[state]}{'+' if counts[state] >= COUNT_LIMIT else ''} {state}"
        for state in STATES
        if counts.get(state)
    )
