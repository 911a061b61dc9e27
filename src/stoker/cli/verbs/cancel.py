"""`stoker cancel`: cancel waiting and running jobs."""

from __future__ import annotations

from stoker.cli.confirmation import DRY_RUN, YES, is_confirmed, print_plan
from stoker.cli.job_words import is_one_job, select_jobs
from stoker.cli.open_queue import open_queue
from stoker.cli.output import plural, print_change
from stoker.cli.start_notice import with_start_notice
from stoker.client.queue import Queue
from stoker.engine.store import job_queries
from stoker.errors import Conflict, UsageError
from stoker.states import STARTED, SUBMITTED, WAITING
from stoker.text.command_line import Option, Parsed, Verb
from stoker.text.durations import parse_duration

VERB = Verb(
    "cancel",
    "cancel [OPTIONS] JOB...",
    "Cancel jobs. A running job gets SIGTERM, and SIGKILL after its grace period; both go to all of"
    " its processes. On a terminal, Stoker asks before it cancels several jobs.",
    (
        Option("--all", "all jobs that have not finished"),
        Option("--now", "send SIGKILL immediately"),
        Option(
            "--grace",
            "time between SIGTERM and SIGKILL (default: the job's own; without unit: seconds)",
            "TIME",
            lambda text: parse_duration(text, "s"),
        ),
        YES,
        DRY_RUN,
        Option("-q --quiet", "print nothing"),
    ),
    (
        ("stoker cancel 7", ""),
        ("stoker cancel waiting", "running jobs continue"),
        ("stoker cancel --all --dry-run", ""),
    ),
    aliases=("kill",),
    words="jobs",
)


def run(parsed: Parsed) -> int:
    queue = open_queue()
    if parsed["all"] and parsed.words:
        raise UsageError(
            f"`--all` and `{parsed.words[0]}` exclude each other", "name jobs, or write `--all`"
        )
    words = ["all"] if parsed["all"] else parsed.words
    ids = select_jobs(queue, words)
    planned = _planned(queue, ids) if parsed["dry_run"] or len(ids) > 1 else ""
    if parsed["dry_run"]:
        return print_plan(parsed, f"{planned or '0 jobs'}, none cancelled", jobs=ids)
    if planned and not is_confirmed(parsed, f"cancel {planned}", "no job was cancelled"):
        return 1
    grace = 0.0 if parsed["now"] else parsed["grace"]
    rows = job_queries.jobs(queue.db, ids)
    submitted = sum(row.state == SUBMITTED for row in rows)
    cancelled, stopping = with_start_notice(queue, lambda: queue.cancel(ids, grace))
    if not cancelled and not stopping and is_one_job(ids, words):
        state = job_queries.job(queue.db, ids[0]).state
        raise Conflict(f"job {ids[0]} has already finished: {state}")
    parts = []
    if cancelled or not stopping:
        parts.append(f"{plural(cancelled, 'job')} cancelled")
    waiting = min(submitted, stopping)
    if stopping > waiting:
        parts.append(f"{plural(stopping - waiting, 'running job')} stopping")
    if waiting:
        parts.append(f"{plural(waiting, 'job')} waiting on a backend being cancelled")
    if parsed["quiet"] and not parsed["json"]:
        return 0
    return print_change(parsed, ", ".join(parts), cancelled=cancelled, stopping=stopping)


def _planned(queue: Queue, ids: list[int]) -> str:
    """The jobs that would be cancelled, in words; "" if there are none."""
    states = [row.state for row in job_queries.jobs(queue.db, ids)]
    waiting = sum(state in (*WAITING, SUBMITTED) for state in states)
    running = sum(state in STARTED for state in states)
    parts = [
        plural(count, f"{kind} job")
        for count, kind in ((waiting, "waiting"), (running, "running"))
        if count
    ]
    return " and ".join(parts)
