"""What each GPU did, as intervals in the database of the usage history.

The usage recorder writes them (features/history/usage_recorder.py). The interval that lasts is
written again with every call, so after a crash its end is known to a few seconds.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from urllib.parse import quote

from stoker.features.history.gpu_time import Interval

KEPT_SECONDS = 30 * 86400.0
MAX_ROWS = 100_000
_CLEANUP_ROWS = 256  # removed by one call at most

SCHEMA = """
CREATE TABLE IF NOT EXISTS gpu_activity (
    id     INTEGER PRIMARY KEY,
    uuid   TEXT NOT NULL,
    since  REAL NOT NULL,
    until  REAL NOT NULL,
    kind   TEXT NOT NULL,           -- see features/history/gpu_activity.py
    jobs   TEXT NOT NULL,           -- ids of the first few, comma-separated
    reason TEXT NOT NULL,           -- why it was idle although jobs waited
    starts INTEGER NOT NULL,        -- jobs that started on it during that time
    UNIQUE (uuid, since)
);
CREATE INDEX IF NOT EXISTS gpu_activity_by_end ON gpu_activity (until);
"""


def save(db: sqlite3.Connection, intervals: Iterable[Interval]) -> None:
    """Add intervals, or extend those that were saved before."""
    db.executemany(
        "INSERT INTO gpu_activity (uuid, since, until, kind, jobs, reason, starts)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (uuid, since) DO UPDATE SET until = excluded.until,"
        " kind = excluded.kind, jobs = excluded.jobs, reason = excluded.reason",
        [
            (
                one.uuid,
                one.since,
                one.until,
                one.kind,
                ",".join(map(str, one.jobs)),
                one.reason,
                one.starts,
            )
            for one in intervals
        ],
    )


def clean_up(db: sqlite3.Connection, now: float) -> None:
    """Remove some of the intervals that are too old or too many."""
    db.execute(
        "DELETE FROM gpu_activity WHERE id IN"
        " (SELECT id FROM gpu_activity WHERE until < ? ORDER BY until LIMIT ?)",
        (now - KEPT_SECONDS, _CLEANUP_ROWS),
    )
    # Ids are given in order and removed almost in order, so this is the number of rows.
    first, last = db.execute("SELECT min(id), max(id) FROM gpu_activity").fetchone()
    excess = 0 if first is None else last - first + 1 - MAX_ROWS
    if excess > 0:
        db.execute(
            "DELETE FROM gpu_activity WHERE id IN"
            " (SELECT id FROM gpu_activity ORDER BY id LIMIT ?)",
            (min(excess, _CLEANUP_ROWS),),
        )


def read(folder: str, since: float, until: float = float("inf")) -> dict[str, list[Interval]]:
    """Return the intervals that end after `since` and begin before `until`, by UUID of the GPU.

    Empty if nothing was recorded, or if the file is damaged.
    """
    found: dict[str, list[Interval]] = {}
    try:
        db = open_for_reading(os.path.join(folder, FILE_NAME))
        try:
            rows = db.execute(
                "SELECT uuid, since, until, kind, jobs, reason, starts FROM gpu_activity"
                " WHERE until > ? AND since < ?",
                (since, until),
            ).fetchall()
        finally:
            db.close()
        for uuid, start, until, kind, jobs, reason, starts in rows:
            ids = tuple(int(word) for word in jobs.split(",") if word)
            found.setdefault(uuid, []).append(
                Interval(
                    uuid=uuid,
                    since=float(start),
                    until=float(until),
                    kind=kind,
                    jobs=ids,
                    reason=reason,
                    starts=int(starts),
                )
            )
    except (sqlite3.Error, ValueError, TypeError, AttributeError):
        return {}
    return found


FILE_NAME = "traces.db"


def open_for_reading(path: str) -> sqlite3.Connection:
    """Open a database read-only. Raises sqlite3.Error if there is none."""
    # Read-only, so that closing does not remove the log of a file that was replaced.
    return sqlite3.connect(
        f"file:{quote(path)}?mode=ro", uri=True, isolation_level=None, timeout=1.0
    )
