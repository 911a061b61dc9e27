"""Arrays: jobs of one submit that differ in their index, and how many of them run at once.

The id of an array is the `batch` of its jobs: the id of the first one.
"""

from __future__ import annotations

from collections.abc import Iterable

from stoker.engine.model import ARRAY_PREFIX
from stoker.engine.store.database import Database, id_list
from stoker.record import Record
from stoker.states import ACTIVE

_ACTIVE = ", ".join(f"'{state}'" for state in ACTIVE)


class ArrayRow(Record):
    id: int
    indexes: str  # 0-99
    most: int | None  # jobs that run at once; None: no limit


def add(db: Database, id: int, indexes: str, most: int | None) -> None:
    """Record an array inside the caller's transaction."""
    db.execute("INSERT INTO arrays VALUES (?, ?, ?)", (id, indexes, most))


def load(db: Database, id: int) -> ArrayRow | None:
    row = db.execute("SELECT id, indexes, most FROM arrays WHERE id = ?", (id,)).fetchone()
    return None if row is None else ArrayRow(*row)


def limits(db: Database, ids: Iterable[int]) -> dict[str, int]:
    """Return the most running jobs of these arrays; 0 among the ids is not an array."""
    found = {}
    for id in {one for one in ids if one}:
        most = db.value("SELECT most FROM arrays WHERE id = ?", (id,))
        if most is not None:
            found[f"{ARRAY_PREFIX}{id}"] = int(str(most))
    return found


def set_limit(db: Database, id: int, most: int | None) -> None:
    """Change how many jobs run at once, inside the caller's transaction; None: no limit."""
    db.execute("UPDATE arrays SET most = ? WHERE id = ?", (most, id))


def active(db: Database, id: int) -> int:
    """Return how many jobs of an array with a limit are submitted or run, here or on a backend."""
    count = db.value(
        "SELECT count(*) FROM jobs j JOIN request_groups g ON g.id = j.request_group"
        f" WHERE g.array = ? AND j.state IN ({_ACTIVE})",
        (id,),
    )
    return int(str(count))


def jobs_of(db: Database, id: int, first: int = 0, last: int | None = None) -> list[int]:
    """Return the newest job of each index: a rerun replaces the job that it repeats."""
    end = "" if last is None else " AND array_index <= ?"
    rows = db.execute(
        "SELECT max(id) FROM jobs INDEXED BY jobs_by_array WHERE batch = ? AND array_index >= ?"
        f" AND array_index IS NOT NULL{end} GROUP BY array_index ORDER BY 1",
        (id, first, *([] if last is None else [last])),
    )
    return [row[0] for row in rows]


def of_jobs(db: Database, jobs: list[int]) -> list[int]:
    """Return the arrays of these jobs."""
    rows = db.execute(
        "SELECT DISTINCT batch FROM jobs WHERE id IN (SELECT value FROM json_each(?))"
        " AND array_index IS NOT NULL",
        (id_list(jobs),),
    )
    return [row[0] for row in rows if row[0] is not None]


def remove_empty(db: Database, ids: list[int]) -> None:
    """Remove those of the arrays whose last job was removed, inside the caller's transaction."""
    db.execute(
        "DELETE FROM arrays WHERE id IN (SELECT value FROM json_each(?)) AND NOT EXISTS"
        " (SELECT 1 FROM jobs WHERE batch = arrays.id AND array_index IS NOT NULL)",
        (id_list(ids),),
    )
