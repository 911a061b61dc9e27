"""The code of jobs that are run again: as it is now, or as it was."""

from __future__ import annotations

import os

from stoker.engine.model import JobSpec
from stoker.engine.snapshot_context import NEW_SNAPSHOT, original_context
from stoker.engine.store import contexts, job_queries, reruns
from stoker.engine.store.database import Database
from stoker.engine.store.reruns import NewPlace, OldPlace
from stoker.errors import Conflict
from stoker.features.code import store as code_states
from stoker.features.code import store_snapshots as snapshots
from stoker.features.code.state_reader import changed_since, named_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.client.queue import Queue


def rerun_places(queue: Queue, ids: list[int], same_code: bool) -> dict[int, NewPlace] | None:
    """Where jobs run again: with the code as it is now, and a new snapshot if they had one.

    Call `queue.release_snapshots` when the new jobs are in the database. With `same_code`, they run
    where they ran (None), or this raises Conflict.
    """
    db, taker = queue.db, queue.snapshots
    if same_code:
        check_same_code(db, ids)
        return None
    by_place: dict[tuple[OldPlace, bool], NewPlace] = {}
    places = {}
    trials = set(job_queries.in_sweeps(db, ids))
    for job, old in reruns.places(db, ids).items():
        place = old, job in trials
        if place not in by_place:
            context = contexts.load_context(db, old.context)
            snapshot = None
            if old.snapshot is not None:
                spec = JobSpec((), original_context(context), snapshot=NEW_SNAPSHOT)
                spec = taker.take_one(spec._replace(request=reruns.request_of(db, job)))
                context, snapshot = spec.context, spec.snapshot
            words = job_queries.words_of(db, job) if job in trials else None
            code = queue.code
            now = code.of(context) if words is None else code.of_command(context, words)
            moved = None if snapshot is None else context
            by_place[place] = NewPlace(now, moved, snapshot, taker)
        places[job] = by_place[place]
    return places


def check_same_code(db: Database, ids: list[int]) -> None:
    """Raise Conflict if a job cannot run again with the code that it was submitted with."""
    checked: set[tuple[int, str | None]] = set()
    for job, old in reruns.places(db, ids).items():
        if old.snapshot is not None:
            known = snapshots.find(db, old.snapshot)
            if known is None or not os.path.isdir(known.tree):
                raise Conflict(
                    f"the snapshot of job {job} was removed",
                    f"`stoker rerun {job}` takes a new one of the code as it is now",
                )
        elif (key := (old.code or 0, None)) not in checked:
            _check_folder(db, job)
            checked.add(key)


def _check_folder(db: Database, job: int) -> None:
    code = code_states.of_job(db, job)
    hint = f"`stoker rerun {job}` uses the code as it is now"
    if code is None:
        raise Conflict(f"job {job} has no snapshot and no record of its code", hint)
    if code.problem is not None:
        raise Conflict(f"the code of job {job} cannot be compared: {code.problem}", hint)
    changed = changed_since(code.root, code.commit, code_states.diff_of(db, code.id))
    if isinstance(changed, str):
        raise Conflict(f"the code of job {job} cannot be compared: {changed}", hint)
    if changed:
        was = "its first commit" if code.commit is None else f"commit {code.commit[:12]}"
        raise Conflict(
            f"the code has changed since job {job} was submitted: {named_files(changed)}",
            f"{hint}; it was {was}" + (" with `stoker show --diff`" if code.is_dirty else ""),
        )
