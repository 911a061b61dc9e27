"""Allocations: what backends were asked for, and the attempts that run in them.

Drivers of backends call these functions inside their transactions. As in attempts.py, every
function is idempotent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from stoker.engine.store import attempts
from stoker.engine.store.database import Database
from stoker.engine.store.dependencies import cancel_waiting
from stoker.record import Record
from stoker.states import ACTIVE

NEW = "new"  # recorded, perhaps not known to the engine yet
SUBMITTED = "submitted"
RUNNING = "running"
ENDED = "ended"


_ACTIVE = ", ".join(f"'{state}'" for state in ACTIVE)
_COLUMNS = "id, backend, token, task, state, request, engine_id, node, reason, position, created_at"


class Allocation(Record):
    id: int
    backend: str
    token: str
    task: int
    state: str
    request: str  # JSON
    engine_id: str | None
    node: str | None
    reason: str | None
    position: int
    created_at: float


class RemoteAttempt(Record):
    """An attempt in an allocation that has not ended."""

    attempt: int
    job: int
    number: int
    state: str  # of the job
    stop_requested: bool
    grace: float | None


def _remote(
    attempt: int, job: int, number: int, state: str, stop_requested: int, grace: float | None
) -> RemoteAttempt:
    return RemoteAttempt(
        attempt=attempt,
        job=job,
        number=number,
        state=state,
        stop_requested=bool(stop_requested),
        grace=grace,
    )


def add(
    db: Database, backend: str, token: str, task: int, request: dict[str, Any], now: float
) -> int:
    """Record an allocation that is about to be requested; returns its id."""
    cursor = db.execute(
        "INSERT INTO allocations (backend, token, task, state, request, created_at)"
        " VALUES (?, ?, ?, 'new', ?, ?)",
        (backend, token, task, json.dumps(request), now),
    )
    return int(cursor.lastrowid or 0)


def load(db: Database, id: int) -> Allocation:
    return _row(db.execute(f"SELECT {_COLUMNS} FROM allocations WHERE id = ?", (id,)).fetchone())


def open_allocations(db: Database, backend: str) -> list[Allocation]:
    """Return the allocations of a backend that have not ended, by id."""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM allocations WHERE backend = ? AND state != 'ended' ORDER BY id",
        (backend,),
    )
    return [_row(row) for row in rows]


def _row(row: tuple[Any, ...]) -> Allocation:
    values = dict(zip(Allocation._fields, row, strict=True))
    return Allocation(**values)


def update(db: Database, id: int, **values: object) -> None:
    """Set columns of an allocation."""
    names = ", ".join(f"{name} = ?" for name in values)
    db.execute(f"UPDATE allocations SET {names} WHERE id = ?", (*values.values(), id))


def take_attempt_ids(db: Database, count: int) -> int:
    """Reserve ids of attempts inside a transaction and return the first."""
    first = attempts.next_attempt(db)
    db.execute("INSERT OR REPLACE INTO meta VALUES ('next_attempt', ?)", (first + count,))
    return first


def record_place(db: Database, attempt: int, node: str | None, gpus: str | None) -> None:
    """Record where an attempt runs."""
    db.execute("UPDATE attempts SET node = ?, gpus = ? WHERE id = ?", (node, gpus, attempt))


def ahead_in_chunk(db: Database, allocation: int, job: int) -> int:
    """Return how many jobs of an allocation have not started and come before this one."""
    return int(
        str(
            db.value(
                "SELECT count(*) FROM attempts a JOIN jobs j ON j.id = a.job AND j.attempt = a.id"
                " WHERE a.allocation = ? AND j.state = 'submitted' AND j.id < ?",
                (allocation, job),
            )
        )
    )


def unfinished(db: Database, allocation: int) -> list[RemoteAttempt]:
    """Return the attempts of an allocation whose end is not recorded, by job."""
    rows = db.execute(
        "SELECT a.id, a.job, a.number, j.state, j.stop_requested IS NOT NULL,"
        " json_extract(j.settings, '$.grace')"
        " FROM attempts a JOIN jobs j ON j.id = a.job AND j.attempt = a.id"
        " WHERE a.allocation = ? AND a.ended_at IS NULL"
        f" AND j.state IN ({_ACTIVE}) ORDER BY a.job",
        (allocation,),
    )
    return [_remote(*row) for row in rows]


def cancel_unstarted(db: Database, one: RemoteAttempt, cause: str, now: float) -> None:
    """Cancel a job that provably did not start."""
    attempts.unclaim(db, one.attempt, now, None)
    cancel_waiting(db, one.job, cause, now)


def withdraw(db: Database, allocation: int, now: float) -> None:
    """Return the jobs of an allocation that was not requested to the queue, and forget it.

    Without an event for each job: the request is repeated until the engine accepts it, and the
    backend's problem says why it does not.
    """
    for one in unfinished(db, allocation):
        attempts.unclaim(db, one.attempt, now, None)
    db.execute("DELETE FROM allocations WHERE id = ?", (allocation,))


def profiles_of(db: Database, allocation: int) -> set[int]:
    """Return the command profiles of the jobs that were handed over with an allocation."""
    rows = db.execute(
        "SELECT DISTINCT j.profile FROM attempts a JOIN jobs j ON j.id = a.job"
        " WHERE a.allocation = ? AND j.profile != 0",
        (allocation,),
    )
    return {row[0] for row in rows}


def remove_unused(db: Database) -> None:
    """Remove ended allocations whose jobs were all removed."""
    db.execute(
        "DELETE FROM allocations WHERE state = 'ended'"
        " AND NOT EXISTS (SELECT 1 FROM attempts WHERE allocation = allocations.id)"
    )


def to_stop(db: Database, backend: str) -> list[tuple[int, RemoteAttempt]]:
    """Return (allocation, attempt) of jobs that a user wants to stop."""
    rows = db.execute(
        "SELECT a.allocation, a.id, a.job, a.number, j.state, 1,"
        " json_extract(j.settings, '$.grace')"
        " FROM jobs j INDEXED BY jobs_stopping JOIN attempts a ON a.id = j.attempt"
        " JOIN allocations l ON l.id = a.allocation"
        f" WHERE j.stop_requested IS NOT NULL AND j.state IN ({_ACTIVE})"
        " AND l.backend = ? ORDER BY j.id",
        (backend,),
    )
    return [(allocation, _remote(*row)) for allocation, *row in rows]


def submitted_seconds(db: Database, backend: str) -> float:
    """Return the expected duration of all jobs that a backend has and has not started."""
    return float(
        str(
            db.value(
                "SELECT coalesce(sum(p.seconds), 0) FROM jobs j JOIN request_groups g"
                " ON g.id = j.request_group JOIN profiles p ON p.id = j.profile"
                " WHERE j.state = 'submitted' AND g.backend = ?",
                (backend,),
            )
        )
    )


def active_by_group(db: Database, groups: Iterable[str]) -> dict[str, int]:
    """Return how many jobs of these fair-share groups are submitted or run, on any backend."""
    found = {}
    for group in groups:
        count = db.value(
            "SELECT count(*) FROM jobs j JOIN request_groups g ON g.id = j.request_group"
            f" WHERE g.fair_share_group = ? AND j.state IN ({_ACTIVE})",
            (group.encode("utf-8", "surrogateescape"),),
        )
        found[group] = int(str(count))
    return found
