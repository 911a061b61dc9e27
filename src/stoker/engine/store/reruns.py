"""Rerun finished jobs: new jobs with the same command, request and dependencies.

If a dependency is rerun together with the job, or failed and was rerun before, the new job depends
on the rerun instead.
"""

from __future__ import annotations

from stoker.engine.model import Context, Request
from stoker.engine.store import request_groups
from stoker.engine.store.database import Database, id_list
from stoker.engine.store.submit import context_id, take_ids
from stoker.errors import Conflict, NotFound
from stoker.record import Record
from stoker.states import HELD, QUEUED, is_satisfied

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.engine.store.submit import NewCode, SnapshotTaker


def check_dependencies(db: Database, ids: list[int]) -> None:
    """Raise Conflict if a dependency of a job can no longer be met: its rerun would never start."""
    together = set(ids)
    for job in ids:
        needs = _impossible_dependency(db, job, together)
        if needs is not None:
            raise Conflict(
                f"job {job} depends on job {needs}, which did not end as required",
                f"`stoker rerun {needs} {job}` submits both again",
            )


class OldPlace(Record):
    """Where a job ran."""

    context: int
    code: int | None
    snapshot: str | None


class NewPlace(Record):
    """Where a job runs again with the code as it is now."""

    code: NewCode | None
    context: Context | None = None  # None: the same as before
    snapshot: str | None = None
    taker: SnapshotTaker | None = None  # of the snapshot


def places(db: Database, ids: list[int]) -> dict[int, OldPlace]:
    """Return where jobs ran."""
    rows = db.execute(
        "SELECT id, context, code, snapshot FROM jobs WHERE id IN (SELECT value FROM json_each(?))",
        (id_list(ids),),
    )
    return {id: OldPlace(*place) for id, *place in rows}


def request_of(db: Database, job: int) -> Request:
    """Return the request of a job."""
    group = db.value("SELECT request_group FROM jobs WHERE id = ?", (job,))
    return request_groups.load(db, int(str(group)))[0]


def copy(
    db: Database,
    job: int,
    now: float,
    held: bool,
    new_ids: dict[int, int],
    place: NewPlace | None = None,
) -> int:
    """Submit a job again and return its new id. Call this inside a transaction.

    `new_ids` maps the jobs that are rerun together with it to their new ids; `place` is where it
    runs with the code as it is now, None keeps its code.
    """
    new = take_ids(db, 1)
    made = db.execute(
        "INSERT INTO jobs (id, state, ready, request_group, profile, priority, shell, argv,"
        " context, submitted_at, name, time_limit, settings, stdout, stderr, variables, sweep,"
        " code, snapshot, array_index, batch, batch_index, rerun_of)"
        " SELECT ?, ?, ?, request_group, profile, priority, shell, argv, context, ?, name,"
        " time_limit, settings, stdout, stderr, variables, sweep, code, snapshot, array_index,"
        " CASE WHEN array_index IS NULL THEN NULL ELSE batch END,"
        " CASE WHEN array_index IS NULL THEN NULL ELSE batch_index END, id FROM jobs WHERE id = ?",
        (new, HELD if held else QUEUED, int(not held), now, job),
    ).rowcount
    if not made:
        raise NotFound(f"job {job} was just removed", "`stoker ls` shows the jobs")
    if place is not None:
        _move(db, new, place, now)
    db.execute("INSERT INTO tags SELECT tag, ? FROM tags WHERE job = ?", (new, job))
    # The trial of a sweep moves to the new job: the newest job of a trial decides its result.
    db.execute(
        "UPDATE trials SET job = ?, state = NULL, reported = 0, reports = NULL WHERE job = ?",
        (new, job),
    )
    _copy_dependencies(db, job, new, new_ids)
    return new


def _move(db: Database, job: int, place: NewPlace, now: float) -> None:
    code = None if place.code is None else place.code.save(db)
    db.execute("UPDATE jobs SET code = ? WHERE id = ?", (code, job))
    if place.context is not None and place.snapshot is not None and place.taker is not None:
        place.taker.save(db, place.snapshot, now)
        db.execute(
            "UPDATE jobs SET context = ?, snapshot = ? WHERE id = ?",
            (context_id(db, place.context), place.snapshot, job),
        )


def failed(db: Database) -> list[int]:
    """Return failed and lost jobs that were not rerun, and jobs cancelled because of them."""
    rows = db.execute(
        "SELECT id, state FROM jobs WHERE (state IN ('failed', 'lost')"
        " OR (state = 'cancelled' AND cause = 'dependency'))"
        " AND id NOT IN (SELECT rerun_of FROM jobs WHERE rerun_of IS NOT NULL) ORDER BY id"
    ).fetchall()
    found: dict[int, None] = {}
    for job, state in rows:
        if state != "cancelled" or _impossible_dependency(db, job, found) is None:
            found[job] = None
    return list(found)


def _copy_dependencies(db: Database, job: int, new: int, new_ids: dict[int, int]) -> None:
    unmet = 0
    for needs, condition, _ in _dependencies(db, job):
        needs, met = _latest_rerun(db, new_ids.get(needs, needs), condition)
        unmet += not met
        row = (new, needs, condition, int(met is True))
        db.execute("INSERT OR IGNORE INTO dependencies VALUES (?, ?, ?, ?)", row)
    if unmet:
        db.execute("UPDATE jobs SET blockers = ?, ready = 0 WHERE id = ?", (unmet, new))


def _impossible_dependency(
    db: Database, job: int, together: set[int] | dict[int, None]
) -> int | None:
    """Return a dependency that ended without meeting its condition; None if there is none."""
    for needs, condition, is_met in _dependencies(db, job):
        if is_met or needs in together:
            continue
        if _latest_rerun(db, needs, condition)[1] is False:
            return needs
    return None


def _dependencies(db: Database, job: int) -> list[tuple[int, str, int]]:
    return db.execute(
        "SELECT needs, condition, met FROM dependencies WHERE job = ? ORDER BY needs", (job,)
    ).fetchall()


def _latest_rerun(db: Database, job: int, condition: str) -> tuple[int, bool | None]:
    """Return the job, or its latest rerun if it cannot meet the condition, and whether it does.

    None: still open. A removed job meets every condition.
    """
    while True:
        state = db.value("SELECT state FROM jobs WHERE id = ?", (job,))
        met = True if state is None else is_satisfied(str(state), condition)
        newer = (
            None
            if met is not False
            else db.value("SELECT max(id) FROM jobs WHERE rerun_of = ?", (job,))
        )
        if newer is None:
            return job, met
        job = int(str(newer))
