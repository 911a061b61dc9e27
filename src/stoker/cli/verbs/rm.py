"""`stoker rm`: remove finished jobs and their logs."""

from __future__ import annotations

from stoker.cli.job_words import select_jobs
from stoker.cli.open_queue import open_queue
from stoker.cli.output import notice, plural, print_change
from stoker.core.formats.command_line import Parsed, Verb
from stoker.errors import Conflict

VERB = Verb(
    "rm",
    "rm JOB...",
    "Remove finished jobs with their logs.",
    (),
    (("stoker rm 3-9", ""),),
    words="jobs",
)


def run(parsed: Parsed) -> int:
    queue = open_queue()
    ids = select_jobs(queue, parsed.words)
    removed = queue.remove(ids)
    left = len(ids) - len(removed)
    if left:
        notice(f"{plural(left, 'job')} not removed: only finished jobs can be removed")
    if ids and not removed:
        raise Conflict("no job was removed", "end them first with `stoker cancel`")
    return print_change(parsed, f"{plural(len(removed), 'job')} removed", removed=removed)
