"""`stoker hold`: keep waiting jobs from starting."""

from __future__ import annotations

from stoker.cli.job_words import is_one_job, select_jobs
from stoker.cli.open_queue import open_queue
from stoker.cli.output import plural, print_change
from stoker.client.views.job import state_words
from stoker.engine.store import job_queries
from stoker.errors import Conflict
from stoker.text.command_line import Parsed, Verb
from stoker.text.commands.shell_words import quote

VERB = Verb(
    "hold",
    "hold JOB...",
    "Keep waiting jobs from starting until they are released.",
    (),
    (("stoker hold 3-9", ""),),
    words="jobs",
)


def run(parsed: Parsed) -> int:
    queue = open_queue()
    ids = select_jobs(queue, parsed.words)
    count = queue.hold(ids)
    if not count and is_one_job(ids, parsed.words):
        state = job_queries.job(queue.db, ids[0]).state
        if state != "held":
            raise Conflict(f"job {ids[0]} {state_words(state)}; only a queued job can be held")
    text = f"{plural(count, 'job')} held"
    if count:
        which = " ".join(map(quote, parsed.words))
        text += f"; to let {'it' if count == 1 else 'them'} start: stoker release {which}"
    return print_change(parsed, text, held=count)
