"""`stoker rm`: remove finished jobs and their logs."""

from __future__ import annotations

from stoker.cli.confirmation import DRY_RUN, YES, is_confirmed, print_kept, print_plan
from stoker.cli.job_words import select_jobs
from stoker.cli.open_queue import open_queue
from stoker.cli.output import notice, plural, print_change
from stoker.core.formats.command_line import Parsed, Verb
from stoker.core.states import FINAL
from stoker.errors import Conflict
from stoker.store import job_queries

VERB = Verb(
    "rm",
    "rm [OPTIONS] JOB...",
    "Remove finished jobs with their logs.",
    (YES, DRY_RUN),
    (("stoker rm 3-9", ""), ("stoker rm --dry-run failed", "")),
    words="jobs",
)


def run(parsed: Parsed) -> int:
    queue = open_queue()
    ids = select_jobs(queue, parsed.words)
    finished = [row.id for row in job_queries.jobs(queue.db, ids) if row.state in FINAL]
    what = plural(len(finished), "finished job")
    if parsed["dry_run"]:
        return print_plan(parsed, f"{what}, none removed", jobs=finished, removed=[])
    question = f"remove {what} with {'its' if len(finished) == 1 else 'their'} logs"
    if finished and not is_confirmed(parsed, question, "nothing was removed"):
        return 1
    removal = queue.removal()
    removal.remove(ids)
    removed = removal.jobs
    print_kept(removal.kept)
    left = len(ids) - len(removed)
    if left:
        notice(f"{plural(left, 'job')} not removed: only finished jobs can be removed")
    if ids and not removed:
        raise Conflict("no job was removed", "end them first with `stoker cancel`")
    return print_change(parsed, f"{plural(len(removed), 'job')} removed", removed=removed)
