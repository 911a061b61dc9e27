"""Update the jobs that depend on a job that ended."""

from __future__ import annotations

from stoker.engine.store.database import Database
from stoker.states import is_satisfied


def release_dependents(db: Database, job: int, state: str, now: float) -> bool:
    """Make jobs ready that waited for this one, or cancel those that can never run.

    Returns whether any job waited for it. This happens in the transaction that records the end,
    so that a crash cannot separate the two. A chain of thousands of jobs may end at once, hence a
    list instead of recursion.
    """
    ended = [(job, state)]
    had_any = False
    while ended:
        job, state = ended.pop()
        waiting = db.execute(
            "SELECT job, condition FROM dependencies WHERE needs = ? AND met = 0", (job,)
        ).fetchall()
        had_any = had_any or bool(waiting)
        for dependent, condition in waiting:
            if not is_satisfied(state, condition):
                if _cancel_waiting(db, dependent, "dependency", now):
                    ended.append((dependent, "cancelled"))
                continue
            db.execute(
                "UPDATE dependencies SET met = 1 WHERE job = ? AND needs = ?", (dependent, job)
            )
            db.execute(
                "UPDATE jobs SET blockers = blockers - 1, ready = (state = 'queued' AND"
                " blockers = 1 AND (eligible_at IS NULL OR eligible_at <= ?)) WHERE id = ?",
                (now, dependent),
            )
    return had_any


def cancel_waiting(db: Database, job: int, cause: str, now: float) -> bool:
    """held or queued -> cancelled, for the job and the jobs that depend on it.

    Returns False if the job was not waiting.
    """
    if not _cancel_waiting(db, job, cause, now):
        return False
    release_dependents(db, job, "cancelled", now)
    return True


def _cancel_waiting(db: Database, job: int, cause: str, now: float) -> bool:
    return bool(
        db.execute(
            "UPDATE jobs SET state = 'cancelled', ready = 0, cause = ?, ended_at = ?"
            " WHERE id = ? AND state IN ('held', 'queued')",
            (cause, now, job),
        ).rowcount
    )
