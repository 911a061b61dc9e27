"""`stoker wait`: block until jobs have ended, and say how."""

from __future__ import annotations

import time

from stoker.cli.open_queue import at_end, open_queue
from stoker.cli.output import notice, plural, print_json
from stoker.cli.start_notice import STARTED
from stoker.client import views
from stoker.client.change_feed import ChangeFeed
from stoker.client.queue import Queue
from stoker.core.formats.command_line import Option, Parsed, Verb
from stoker.core.formats.durations import format_duration, parse_duration
from stoker.core.states import FINAL
from stoker.errors import TimedOut
from stoker.store import job_queries
from stoker.store.job_queries import JobRow

VERB = Verb(
        "wait",
        "wait [OPTIONS] [JOB...]",
        "Wait until jobs have ended (default: all). One job: its own exit code, 128+N for a signal."
        "\nSeveral: 0 when all succeeded, else 1.",
        (
            Option("--all", "wait for every job of the queue (the default)"),
            Option("--any", "return as soon as one of them has ended"),
            Option("--timeout", "give up after this long, with exit code 124 (bare: seconds)",
                   "TIME", lambda text: parse_duration(text, "s")),
            Option("--ignore-failures", "exit 0 whatever the jobs returned"),
            Option("-q --quiet", "print nothing"),
        ),
        (("stoker wait 7 && echo trained", ""), ("stoker wait --timeout 2h", "")),
        words="jobs",
    )  # fmt: skip

# Held jobs would be waited for in vain, unless somebody names them.
_CAN_CHANGE = ("queued", "starting", "running", "stopping")


def run(parsed: Parsed) -> int:
    queue = open_queue()
    news = ChangeFeed(queue.settings.state_dir)
    at_end(news.close)
    give_up = None if parsed["timeout"] is None else time.monotonic() + parsed["timeout"]
    single = (bool(parsed.words) or bool(parsed["any"])) and not parsed["all"]
    ids = queue.select(parsed.words or ["queued", "active"]) if single else []
    left = ids
    if job_queries.has_any(queue.db, _CAN_CHANGE) and queue.wake() and not parsed["quiet"]:
        notice(STARTED)
    if not parsed["quiet"]:
        for row in job_queries.jobs(queue.db, ids) if single else ():
            if row.state == "held":
                notice(f"job {row.id} is held; `stoker release {row.id}` lets it run")
    while True:
        if single and parsed["any"]:
            if not ids or len(job_queries.unfinished(queue.db, ids, len(ids))) < len(ids):
                break
        elif single:
            # Only the first unfinished one is looked at: a wait for thousands costs as little.
            left = _from_first_unfinished(queue, left)
            if not left:
                break
        elif not job_queries.has_any(queue.db, _CAN_CHANGE):
            break
        rest = None if give_up is None else give_up - time.monotonic()
        if rest is not None and rest <= 0:
            count = (
                len(job_queries.unfinished(queue.db, ids, len(ids))) if single else _active(queue)
            )
            after = format_duration(parsed["timeout"])
            raise TimedOut(f"{plural(count, 'job')} not ended after {after}")
        news.wait(rest)
    if not single:
        return 0 if parsed["ignore_failures"] else _all_code(queue, parsed)
    rows = job_queries.jobs(queue.db, ids)
    ended = [row for row in rows if row.state in FINAL]
    if parsed["json"]:
        print_json(jobs=[views.job_json(queue.db, queue.settings, row) for row in ended])
    elif not parsed["quiet"]:
        for row in ended:
            words = views.result_words(row, queue.db)
            notice(f"job {row.id} {row.state}" + (f": {words}" if words else ""))
    if parsed["ignore_failures"]:
        return 0
    if len(ids) == 1:
        return code_of(rows[0])
    return int(any(row.state != "done" for row in ended))


def _from_first_unfinished(queue: Queue, ids: list[int]) -> list[int]:
    first = job_queries.unfinished(queue.db, ids, 1)
    return ids[ids.index(first[0]) :] if first else []


def _active(queue: Queue) -> int:
    counts = job_queries.counts(queue.db)
    return sum(counts.get(state, 0) for state in _CAN_CHANGE)


def _all_code(queue: Queue, parsed: Parsed) -> int:
    counts = job_queries.counts(queue.db)
    bad = sum(counts.get(state, 0) for state in ("failed", "cancelled", "lost"))
    if parsed["json"]:
        print_json(counts=counts)
    elif not parsed["quiet"]:
        notice("all jobs finished" + (f", {bad} failed" if bad else ""))
    return int(bad > 0)


def code_of(row: JobRow) -> int:
    """An exit code for a shell, as the job's own would be."""
    if row.state == "done":
        return 0
    number = views.signal_number(row)
    if number:
        return 128 + number
    return views.exit_code(row) or 1
