"""`stoker priority`: change the priority of waiting jobs."""

from __future__ import annotations

from stoker.cli.job_words import is_one_job, select_jobs
from stoker.cli.open_queue import open_queue
from stoker.cli.output import plural, print_change
from stoker.client.views.job import state_words
from stoker.engine.store import job_queries
from stoker.errors import Conflict, UsageError
from stoker.text.command_line import Parsed, Verb, whole_number

VERB = Verb(
    "priority",
    "priority N JOB...",
    "Change the priority of waiting jobs. A higher number starts first; the default is 0.",
    (),
    (
        ("stoker priority 10 7", "job 7 starts before jobs with a lower priority"),
        ("stoker priority -5 3-9", "these start after jobs with a higher priority"),
    ),
    words="jobs",
    minus_words=True,
)


def run(parsed: Parsed) -> int:
    if not parsed.words:
        raise UsageError("no priority and no jobs given", "example: stoker priority 10 7")
    queue = open_queue()
    priority = whole_number(parsed.words[0])
    ids = select_jobs(queue, parsed.words[1:])
    count = queue.set_priority(ids, priority)
    if not count and is_one_job(ids, parsed.words[1:]):
        state = job_queries.job(queue.db, ids[0]).state
        raise Conflict(
            f"job {ids[0]} {state_words(state)}; only a waiting job can change its priority"
        )
    return print_change(
        parsed, f"priority of {plural(count, 'job')} set to {priority}", changed=count
    )
