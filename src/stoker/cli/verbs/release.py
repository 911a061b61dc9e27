"""`stoker release`: let held jobs start."""

from __future__ import annotations

from stoker.cli.job_words import is_one_job, select_jobs
from stoker.cli.open_queue import open_queue
from stoker.cli.output import plural, print_change
from stoker.cli.start_notice import with_start_notice
from stoker.client.views.job import state_words
from stoker.engine.store import job_queries
from stoker.errors import Conflict
from stoker.text.command_line import Parsed, Verb

VERB = Verb(
    "release",
    "release JOB...",
    "Let held jobs start.",
    (),
    (("stoker release all", ""),),
    words="jobs",
)


def run(parsed: Parsed) -> int:
    queue = open_queue()
    ids = select_jobs(queue, parsed.words)
    count = with_start_notice(queue, lambda: queue.release(ids))
    if not count and is_one_job(ids, parsed.words):
        state = job_queries.job(queue.db, ids[0]).state
        raise Conflict(f"job {ids[0]} {state_words(state)}; only a held job can be released")
    return print_change(parsed, f"{plural(count, 'job')} released", released=count)
