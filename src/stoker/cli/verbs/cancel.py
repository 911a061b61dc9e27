"""`stoker cancel`: cancel waiting and running jobs."""

from __future__ import annotations

from stoker.cli.confirmation import DRY_RUN, YES, is_confirmed, print_plan
from stoker.cli.job_words import is_one_job, select_jobs
from stoker.cli.open_queue import open_queue
from stoker.cli.output import plural, print_change
from stoker.cli.start_notice import with_start_notice
from stoker.client.queue import Queue
from stoker.core.formats.command_line import Option, Parsed, Verb
from stoker.core.formats.durations import parse_duration
from stoker.core.states import ACTIVE, WAITING
from stoker.errors import Conflict, UsageError
from stoker.store import job_queries

VERB = Verb(
    "cancel",
    "cancel [OPTIONS] JOB...",
    "Cancel jobs. A running job gets SIGTERM, and SIGKILL after its grace period; both go to all of"
    " its processes. On a terminal, Stoker asks before it cancels several jobs.",
    (
        Option("--all", "all jobs that have not finished"),
        Option("--now", "send SIGKILL immediately"),
        Option("--grace", "time between SIGTERM and SIGKILL (default: the job's own; without unit:"
               " seconds)", "TIME", lambda text: parse_duration(text, "s")),
        YES,
        DRY_RUN,
        Option("-q --quiet", "print nothing"),
    ),
    (("stoker cancel 7", ""), ("stoker cancel waiting", "running jobs continue"),
     ("stoker cancel --all --dry-run", "")),
    aliases=("kill",),
    words="jobs",
)  # fmt: skip


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
    cancelled, stopping = with_start_notice(queue, lambda: queue.cancel(ids, grace))
    if not cancelled and not stopping and is_one_job(ids, words):
        state = job_queries.job(queue.db, ids[0]).state
        raise Conflict(f"job {ids[0]} has already finished: {state}")
    parts = []
    if cancelled or not stopping:
        parts.append(f"{plural(cancelled, 'job')} cancelled")
    if stopping:
        parts.append(f"{plural(stopping, 'running job')} stopping")
    if parsed["quiet"] and not parsed["json"]:
        return 0
    return print_change(parsed, ", ".join(parts), cancelled=cancelled, stopping=stopping)


def _planned(queue: Queue, ids: list[int]) -> str:
    """The jobs that would be cancelled, in words; "" if there are none."""
    states = [row.state for row in job_queries.jobs(queue.db, ids)]
    waiting = sum(state in WAITING for state in states)
    running = sum(state in ACTIVE for state in states)
    parts = [
        plural(count, f"{kind} job")
        for count, kind in ((waiting, "waiting"), (running, "running"))
        if count
    ]
    return " and ".join(parts)
