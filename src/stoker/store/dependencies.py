"""What follows for other jobs when a job ends, or when a sweep is stopped."""

from __future__ import annotations

from stoker.store import sweeps
from stoker.store.database import Database
from stoker.store.submit import satisfied


def release_dependants(db: Database, job: int, state: str, now: float) -> bool:
    """Jobs that waited for this one become ready, or end because they never can.

    In the same transaction as the end itself: no crash can come between the two. A chain of
    thousands may end at once, so it is walked with a list, not by recursion.
    """
    ended = [(job, state)]
    had_any = False
    while ended:
        job, state = ended.pop()
        waiting = db.execute(
            "SELECT job, condition FROM dependencies WHERE needs = ? AND met = 0", (job,)
        ).fetchall()
        had_any = had_any or bool(waiting)
        for dependant, condition in waiting:
            if not satisfied(state, condition):
                if _cancel_waiting(db, dependant, "dependency", now):
                    ended.append((dependant, "cancelled"))
                continue
            db.execute(
                "UPDATE dependencies SET met = 1 WHERE job = ? AND needs = ?", (dependant, job)
            )
            db.execute(
                "UPDATE jobs SET blockers = blockers - 1, ready = (state = 'queued' AND"
                " blockers = 1 AND (eligible_at IS NULL OR eligible_at <= ?)) WHERE id = ?",
                (now, dependant),
            )
    return had_any


def cancel_waiting(db: Database, job: int, cause: str, now: float) -> bool:
    """held or queued -> cancelled, and what follows from it for others."""
    if not _cancel_waiting(db, job, cause, now):
        return False
    release_dependants(db, job, "cancelled", now)
    return True


def _cancel_waiting(db: Database, job: int, cause: str, now: float) -> bool:
    return bool(
        db.execute(
            "UPDATE jobs SET state = 'cancelled', ready = 0, cause = ?, ended_at = ?"
            " WHERE id = ? AND state IN ('held', 'queued')",
            (cause, now, job),
        ).rowcount
    )


def stop_sweep(db: Database, sweep: int, why: str, now: float) -> int:
    """Nothing more of it starts; returns how many waiting jobs that ended."""
    sweeps.mark_stopped(db, sweep, why)
    ended = db.execute(
        "UPDATE jobs INDEXED BY jobs_by_sweep SET state = 'cancelled', ready = 0, cause = 'sweep',"
        " ended_at = ? WHERE sweep = ? AND state IN ('held', 'queued')",
        (now, sweep),
    ).rowcount
    waited_for = db.execute(
        "SELECT DISTINCT d.needs FROM dependencies d JOIN jobs j ON j.id = d.needs"
        " WHERE d.met = 0 AND j.sweep = ? AND j.state = 'cancelled'",
        (sweep,),
    ).fetchall()
    for (job,) in waited_for:
        release_dependants(db, job, "cancelled", now)
    return ended
