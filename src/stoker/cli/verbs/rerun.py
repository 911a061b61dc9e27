"""`stoker rerun`: submit finished jobs again."""

from __future__ import annotations

import os
import shutil

from stoker.cli.confirmation import DRY_RUN, YES, is_confirmed, print_plan
from stoker.cli.job_words import select_jobs
from stoker.cli.open_queue import open_queue
from stoker.cli.output import plural, print_change
from stoker.cli.start_notice import with_start_notice
from stoker.cli.verbs import edit
from stoker.client.queue import Queue
from stoker.client.views.job import checkpoint_folder
from stoker.engine.store import job_queries
from stoker.errors import Conflict
from stoker.states import FINAL
from stoker.text.command_line import Option, Parsed, Verb

_SHOWN = 10

VERB = Verb(
    "rerun",
    "rerun [OPTIONS] [JOB...]",
    "Submit finished jobs again, as new jobs with the same request or a changed one.",
    (
        Option(
            "--failed",
            "all failed and lost jobs, and jobs cancelled because of them, that were not rerun yet",
        ),
        Option(
            "--same-code",
            "run them with the code that they were submitted with: in the same"
            " snapshot, or only if their folder has not changed",
        ),
        Option("--hold", "hold the new jobs, for example to edit them first"),
        Option(
            "--resume",
            "continue from the checkpoints of the old job: the new job finds them in"
            " its $STOKER_CHECKPOINT_DIR",
        ),
        YES,
        DRY_RUN,
        *(option for option in edit.VERB.options if option.key != "array_limit"),
    ),
    (
        ("stoker rerun 7", ""),
        ("stoker rerun --failed", ""),
        ("stoker rerun 7 --time-limit 8h --resume", "a changed request, and the old checkpoints"),
        ("stoker rerun 7 --same-code", "refuses if the code has changed, unless it has a snapshot"),
    ),
    words="jobs",
)


def run(parsed: Parsed) -> int:
    queue = open_queue()
    ids = _failed(queue, parsed.words) if parsed["failed"] else _finished(queue, parsed.words)
    what = plural(len(ids), "failed job" if parsed["failed"] else "job")
    if parsed["dry_run"]:
        return print_plan(parsed, f"{what}{_shown(ids)}, none resubmitted", reruns=ids, jobs=[])
    asks = parsed["failed"] and len(ids) > 1
    if asks and not is_confirmed(parsed, f"rerun {what}{_shown(ids)}", "nothing was resubmitted"):
        return 1
    new = with_start_notice(queue, lambda: _rerun(queue, parsed, ids))
    if len(new) == 1:
        return print_change(parsed, f"job {ids[0]} resubmitted as job {new[0]}", jobs=new)
    pairs = ", ".join(f"{old} as {job}" for old, job in list(zip(ids, new, strict=True))[:_SHOWN])
    text = f"{plural(len(new), 'job')} resubmitted" + (f": {pairs}" if pairs else "")
    return print_change(parsed, text, jobs=new)


def _rerun(queue: Queue, parsed: Parsed, ids: list[int]) -> list[int]:
    requests = [row.request for row in job_queries.jobs(queue.db, ids)]
    changes = [edit.changes_of(queue, parsed, request) for request in requests]
    for given in filter(None, changes):
        queue.check_changes(given["request"], given["after"])
    if parsed["resume"]:
        _check_checkpoints(queue, ids)
    # Held until they have their changes and checkpoints.
    is_changed = parsed["resume"] or any(changes)
    new = queue.rerun(ids, bool(parsed["hold"] or is_changed), bool(parsed["same_code"]))
    if not is_changed:
        return new
    for old, job, change in zip(ids, new, changes, strict=True):
        if change is not None:
            queue.edit(job, **change)
        if parsed["resume"]:
            _copy_checkpoints(queue, old, job)
    if not parsed["hold"]:
        queue.release(new)
    return new


def _failed(queue: Queue, words: list[str]) -> list[int]:
    ids = queue.failed_jobs()
    if not words:
        return ids
    chosen = set(queue.select(words))
    return [job for job in ids if job in chosen]


def _finished(queue: Queue, words: list[str]) -> list[int]:
    ids = select_jobs(queue, words)
    for job in ids:
        state = job_queries.job(queue.db, job).state
        if state not in FINAL:
            raise Conflict(f"job {job} is {state}; only a finished job can be rerun")
    return ids


def _shown(ids: list[int]) -> str:
    """The first ids, in parentheses."""
    more = ", …" if len(ids) > _SHOWN else ""
    return f" ({', '.join(map(str, ids[:_SHOWN]))}{more})" if ids else ""


def _check_checkpoints(queue: Queue, ids: list[int]) -> None:
    """Raise Conflict for a job without a folder of checkpoints."""
    for row in job_queries.jobs(queue.db, ids):
        folder = checkpoint_folder(queue.settings, row)
        if not os.path.isdir(folder):
            raise Conflict(
                f"job {row.id} has no checkpoints: there is no folder `{folder}`",
                f"rerun it without --resume: stoker rerun {row.id}",
            )


def _copy_checkpoints(queue: Queue, old: int, new: int) -> None:
    """Give a rerun the checkpoints of the old job, as hard links where possible.

    Both jobs have them, so that the removal of one does not take them from the other. A trial and
    its rerun have the same folder anyway.
    """
    rows = job_queries.jobs(queue.db, [old, new])
    source, target = (checkpoint_folder(queue.settings, row) for row in rows)
    if source == target:
        return
    try:
        shutil.copytree(source, target, symlinks=True, copy_function=_link)
    except (OSError, shutil.Error) as error:
        shutil.rmtree(target, ignore_errors=True)
        raise Conflict(
            f"the checkpoints of job {old} cannot be copied: {error}",
            f"its rerun is held; to let it start without them: stoker release {new}",
        ) from error


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
