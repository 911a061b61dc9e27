"""The code of jobs that are run again: as it is now, or as it was."""

from __future__ import annotations

import os

from stoker.engine.model import JobSpec
from stoker.engine.snapshot_context import NEW_SNAPSHOT, original_context
from stoker.engine.store import contexts, reruns
from stoker.engine.store.database import Database
from stoker.engine.store.reruns import NewPlace, OldPlace
from stoker.errors import Conflict
from stoker.features.code import store as code_states
from stoker.features.code import store_snapshots as snapshots
from stoker.features.code.code_gatherer import CodeGatherer
from stoker.features.code.snapshots import Snapshots
from stoker.features.code.state_reader import changed_since, named_files


def places_now(
    db: Database, ids: list[int], code: CodeGatherer, taker: Snapshots
) -> dict[int, NewPlace]:
    """Where jobs run again with the code as it is now; jobs with a snapshot get a new one.

    Call `taker.release` when the new jobs are in the database.
    """
    by_place: dict[OldPlace, NewPlace] = {}
    places = {}
    for job, old in reruns.places(db, ids).items():
        if old not in by_place:
            context = contexts.load_context(db, old.context)
            taken = None
            if old.snapshot is not None:
                spec = JobSpec((), original_context(context), snapshot=NEW_SNAPSHOT)
                spec = taker.take_one(spec._replace(request=reruns.request_of(db, job)))
                context = spec.context
                taken = taker.taken(spec.snapshot or "")
            by_place[old] = NewPlace(code.of(context), None if taken is None else context, taken)
        places[job] = by_place[old]
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
