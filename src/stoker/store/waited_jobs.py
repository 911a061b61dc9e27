"""Queries about a set of jobs that a process waits for. `ids` is None for all jobs of the queue."""

from __future__ import annotations

from collections.abc import Sequence

from stoker.core.record import Record
from stoker.core.states import ACTIVE
from stoker.store import job_queries
from stoker.store.database import Database, id_list
from stoker.store.interrupted_jobs import interrupted

_AMONG = "j.id IN (SELECT value FROM json_each(?))"
_ACTIVE = ", ".join(f"'{state}'" for state in ACTIVE)


class QueuedWork(Record):
    """Queued jobs with the same command profile and time limit."""

    profile: int
    time_limit: float | None
    jobs: int


def _where(ids: Sequence[int] | None) -> tuple[str, tuple[object, ...]]:
    return ("", ()) if ids is None else (f" AND {_AMONG}", (id_list(ids),))


def counts(db: Database, ids: Sequence[int] | None) -> dict[str, int]:
    """Return the number of these jobs by state."""
    return job_queries.counts(db) if ids is None else job_queries.counts_of(db, list(ids))


def active_jobs(db: Database, ids: Sequence[int] | None, limit: int) -> list[int]:
    """Return the first of these jobs that have been started and not finished."""
    where, values = _where(ids)
    after_boot = interrupted(db)
    rows = db.execute(
        f"SELECT j.id FROM jobs j WHERE j.state IN ({_ACTIVE}){where} ORDER BY j.id LIMIT ?",
        (*values, limit + len(after_boot)),
    )
    return [row[0] for row in rows if row[0] not in after_boot][:limit]


def queued_work(db: Database, ids: Sequence[int] | None) -> list[QueuedWork]:
    """Return the queued jobs of the set by profile and time limit."""
    where, values = _where(ids)
    rows = db.execute(
        "SELECT j.profile, j.time_limit, count(*) FROM jobs j"
        f" WHERE j.state = 'queued'{where} GROUP BY 1, 2",
        values,
    )
    return [QueuedWork(*row) for row in rows]


def queued_among(db: Database, jobs: Sequence[int], ids: Sequence[int] | None) -> list[int]:
    """Return which of `jobs` are queued and in the set."""
    where, values = _where(ids)
    rows = db.execute(
        f"SELECT j.id FROM jobs j WHERE j.state = 'queued' AND {_AMONG}{where}",
        (id_list(jobs), *values),
    )
    return [row[0] for row in rows]


def mean_seconds(db: Database, ids: Sequence[int]) -> float | None:
    """Return the mean duration of the newest successful jobs of the set; None if there are none."""
    where, values = _where(ids)
    found = db.value(
        "SELECT avg(seconds) FROM (SELECT a.ended_at - a.started_at AS seconds FROM jobs j"
        f" JOIN attempts a ON a.id = j.attempt WHERE j.state = 'done'{where}"
        " ORDER BY j.id DESC LIMIT 100)",
        values,
    )
    return None if found is None else float(str(found))
