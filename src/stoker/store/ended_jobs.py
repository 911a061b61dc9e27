"""Which of many jobs have ended: one query, however many are waited for."""

from __future__ import annotations

from stoker.core.states import FINAL
from stoker.store.database import Database

_FINAL = ", ".join(f"'{state}'" for state in FINAL)


def ended_among(db: Database, ids: list[int]) -> list[tuple[int, str | None]]:
    """(id, state) in the order in which they ended; a job that was removed has no state."""
    import json

    return db.execute(
        "SELECT value, state FROM json_each(?) LEFT JOIN jobs ON jobs.id = value"
        f" WHERE state IS NULL OR state IN ({_FINAL}) ORDER BY ended_at, value",
        (json.dumps(ids),),
    ).fetchall()
