"""Events of jobs that are not visible in other tables."""

from __future__ import annotations

from stoker.engine.store.database import Database
from stoker.text.byte_text import storable

STOPPED_LEFTOVERS = "stopped_leftovers"  # processes that outlived the command


def record_event(db: Database, job: int, now: float, kind: str, data: str | None = None) -> None:
    data = None if data is None else storable(data)
    db.execute(
        "INSERT INTO events (job, at, kind, data) VALUES (?, ?, ?, ?)", (job, now, kind, data)
    )
