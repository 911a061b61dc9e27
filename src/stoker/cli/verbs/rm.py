"""`stoker rm`: remove finished jobs and their logs."""

from __future__ import annotations

from stoker.cli.confirmation import (
    DRY_RUN,
    YES,
    is_asked,
    is_confirmed,
    print_kept,
    print_marked,
    print_plan,
)
from stoker.cli.job_words import select_jobs
from stoker.cli.open_queue import open_queue
from stoker.cli.output import notice, plural, print_change
from stoker.client.removal import removal_plan
from stoker.engine.store import job_queries
from stoker.errors import Conflict
from stoker.features.notes import store as notes
from stoker.states import FINAL
from stoker.text.command_line import Parsed, Verb
from stoker.text.selectors import parse_selector, split_words

VERB = Verb(
    "rm",
    "rm [OPTIONS] JOB...",
    "Remove finished jobs with their logs and metrics. A state such as `failed` or `all` leaves out"
    " jobs with a star or a note.",
    (YES, DRY_RUN),
    (("stoker rm 3-9", ""), ("stoker rm --dry-run failed", "")),
    words="jobs",
)


def run(parsed: Parsed) -> int:
    queue = open_queue()
    ids = select_jobs(queue, parsed.words)
    kept = notes.marked_jobs(queue.db, ids)
    # A state such as `all` or `failed` names no job.
    words = split_words(parsed.words)
    named = [word for word in words if parse_selector(word).states is None]
    kept -= set(queue.select(named)) if named else set()
    ids = [job for job in ids if job not in kept]
    print_marked(len(kept))
    finished = job_queries.in_states(queue.db, ids, FINAL)
    if parsed["dry_run"] or is_asked(parsed):
        plan = removal_plan(queue.db, finished)
        if parsed["dry_run"]:
            return print_plan(
                parsed,
                f"{plan.words()}, none removed",
                jobs=finished,
                removed=[],
                kept=sorted(kept),
                bytes=plan.file_bytes,
            )
        if finished and not is_confirmed(parsed, f"remove {plan.words()}", "nothing was removed"):
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
