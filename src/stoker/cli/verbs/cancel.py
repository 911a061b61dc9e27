"""`stoker cancel`: cancel waiting and running jobs."""

from __future__ import annotations

from stoker.cli.job_words import is_one_job, select_jobs
from stoker.cli.open_queue import open_queue
from stoker.cli.output import plural, print_change
from stoker.cli.start_notice import with_start_notice
from stoker.core.formats.command_line import Option, Parsed, Verb
from stoker.core.formats.durations import parse_duration
from stoker.errors import Conflict
from stoker.store import job_queries

VERB = Verb(
    "cancel",
    "cancel [OPTIONS] JOB...",
    "Cancel jobs. A running job gets SIGTERM, and SIGKILL after its grace period; both go to all of"
    " its processes.",
    (
        Option("--now", "send SIGKILL immediately"),
        Option("--grace", "time between SIGTERM and SIGKILL (default: the job's own; without unit:"
               " seconds)", "TIME", lambda text: parse_duration(text, "s")),
    ),
    (("stoker cancel 7", ""), ("stoker cancel waiting", "running jobs continue")),
    aliases=("kill",),
    words="jobs",
)  # fmt: skip


def run(parsed: Parsed) -> int:
    queue = open_queue()
    ids = select_jobs(queue, parsed.words)
    grace = 0.0 if parsed["now"] else parsed["grace"]
    cancelled, stopping = with_start_notice(queue, lambda: queue.cancel(ids, grace))
    if not cancelled and not stopping and is_one_job(ids, parsed.words):
        state = job_queries.job(queue.db, ids[0]).state
        raise Conflict(f"job {ids[0]} has already finished: {state}")
    parts = []
    if cancelled or not stopping:
        parts.append(f"{plural(cancelled, 'job')} cancelled")
    if stopping:
        parts.append(f"{plural(stopping, 'running job')} stopping")
    return print_change(parsed, ", ".join(parts), cancelled=cancelled, stopping=stopping)
