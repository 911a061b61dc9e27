"""Ended jobs once more: as new jobs that ask for the same, and wait for the same.

A job that waited for one that is submitted again along with it waits for the new one. So does a job
that waited for one that failed and was submitted again before.
"""

from __future__ import annotations

from stoker.core.states import HELD, QUEUED
from stoker.errors import Conflict, NotFound
from stoker.store.database import Database
from stoker.store.submit import satisfied, take_ids


def refuse_vain(db: Database, ids: list[int]) -> None:
    """A job whose condition can no longer be met would never run."""
    together = set(ids)
    for job in ids:
        needs = _in_vain(db, job, together)
        if needs is not None:
            raise Conflict(
                f"job {job} waited for job {needs}, which did not end as it had to",
                f"`stoker rerun {needs} {job}` submits both again",
            )


def copy(db: Database, job: int, now: float, held: bool, renamed: dict[int, int]) -> int:
    """Inside a transaction. `renamed`: what the jobs submitted along with it are called now."""
    new = take_ids(db, 1)
    made = db.execute(
        "INSERT INTO jobs (id, state, ready, line, family, priority, shell, argv, context,"
        " submitted_at, name, time_limit, grace, retries, restartable, keep_children, on_oom,"
        " stdout, stderr, variables, warn, sweep, rerun_of)"
        " SELECT ?, ?, ?, line, family, priority, shell, argv, context, ?, name, time_limit, grace,"
        " retries, restartable, keep_children, on_oom, stdout, stderr, variables, warn, sweep, id"
        " FROM jobs WHERE id = ?",
        (new, HELD if held else QUEUED, int(not held), now, job),
    ).rowcount
    if not made:
        raise NotFound(f"job {job} was removed meanwhile", "`stoker ls` shows the jobs")
    db.execute("INSERT INTO tags SELECT tag, ? FROM tags WHERE job = ?", (new, job))
    # The trial of a sweep goes with it: what counts is how the newest job of a trial ends.
    db.execute("UPDATE trials SET job = ?, told = 0 WHERE job = ?", (new, job))
    _wait_for_the_same(db, job, new, renamed)
    return new


def failed(db: Database) -> list[int]:
    """What failed or was lost and nobody has submitted again, and what was given up for it."""
    rows = db.execute(
        "SELECT id, state FROM jobs WHERE (state IN ('failed', 'lost')"
        " OR (state = 'cancelled' AND cause = 'dependency'))"
        " AND id NOT IN (SELECT rerun_of FROM jobs WHERE rerun_of IS NOT NULL) ORDER BY id"
    ).fetchall()
    found: dict[int, None] = {}
    for job, state in rows:
        if state != "cancelled" or _in_vain(db, job, found) is None:
            found[job] = None
    return list(found)


def _wait_for_the_same(db: Database, job: int, new: int, renamed: dict[int, int]) -> None:
    unmet = 0
    for needs, condition, _ in _dependencies(db, job):
        needs, met = _standing(db, renamed.get(needs, needs), condition)
        unmet += not met
        row = (new, needs, condition, int(met is True))
        db.execute("INSERT OR IGNORE INTO dependencies VALUES (?, ?, ?, ?)", row)
    if unmet:
        db.execute("UPDATE jobs SET blockers = ?, ready = 0 WHERE id = ?", (unmet, new))


def _in_vain(db: Database, job: int, together: set[int] | dict[int, None]) -> int | None:
    """A job that this one waited for, that is over, and not in the way that was asked for."""
    for needs, condition, is_met in _dependencies(db, job):
        if not is_met and needs not in together and _standing(db, needs, condition)[1] is False:
            return needs
    return None


def _dependencies(db: Database, job: int) -> list[tuple[int, str, int]]:
    return db.execute(
        "SELECT needs, condition, met FROM dependencies WHERE job = ? ORDER BY needs", (job,)
    ).fetchall()


def _standing(db: Database, job: int, condition: str) -> tuple[int, bool | None]:
    """Whether a job fulfils the condition; where it cannot any more, the last one in its place.

    None: that is open. What was removed is in nobody's way.
    """
    while True:
        state = db.value("SELECT state FROM jobs WHERE id = ?", (job,))
        met = True if state is None else satisfied(str(state), condition)
        newer = (
            None
            if met is not False
            else db.value("SELECT max(id) FROM jobs WHERE rerun_of = ?", (job,))
        )
        if newer is None:
            return job, met
        job = int(str(newer))
