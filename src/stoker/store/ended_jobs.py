"""Find finished jobs among many, with one query."""

from __future__ import annotations

from stoker.core.states import FINAL
from stoker.store.database import Database

_FINAL = ", ".join(f"'{state}'" for state in FINAL)


def ended_among(db: Database, ids: list[int]) -> list[tuple[int, str | None]]:
    """Return (id, state) of the finished jobs in the order of their ends.

    The state of a job that was removed is None.
    """
    import json

    return db.execute(
        "SELECT value, state FROM json_each(?) LEFT JOIN jobs ON jobs.id = value"
        f" WHERE state IS NULL OR state IN ({_FINAL}) ORDER BY ended_at, value",
        (json.dumps(ids),),
    ).fetchall()
