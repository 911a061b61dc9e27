"""Shrink the database file while other processes use it.

A database created since 0.1 has `auto_vacuum=INCREMENTAL`: free pages are returned in steps, each a
short transaction. An older one needs a VACUUM, which blocks writers and needs space for a copy, so
it runs only if that does no harm (see `_may_not_vacuum`).
"""

from __future__ import annotations

import os
import sqlite3

from stoker.engine.store.database import FILE_NAME, Database
from stoker.engine.store.job_queries import has_any
from stoker.states import ACTIVE

_INCREMENTAL = 2
_STEP_PAGES = 2000
_MIN_FREE_BYTES = 1 << 20  # fewer free bytes than this are kept for the next jobs
_MAX_VACUUM_BYTES = 256 << 20  # a copy of this takes about a second


def size(folder: str) -> int:
    """Return the size of the database with its write-ahead log, in bytes."""
    total = 0
    for suffix in ("", "-wal"):
        try:
            total += os.stat(os.path.join(folder, FILE_NAME + suffix)).st_size
        except FileNotFoundError:
            pass
    return total


def reclaim(db: Database) -> str | None:
    """Shrink the file if possible; returns the reason if not, else None.

    Raises sqlite3.Error; the database is unchanged then.
    """
    page = _number(db, "page_size")
    problem = None
    if _number(db, "freelist_count") * page >= _MIN_FREE_BYTES:
        if _number(db, "auto_vacuum") == _INCREMENTAL:
            while _number(db, "freelist_count"):
                db.execute(f"PRAGMA incremental_vacuum({_STEP_PAGES})").fetchall()
        else:
            problem = _may_not_vacuum(db, page)
            if problem is None:
                db.execute("PRAGMA auto_vacuum=INCREMENTAL")
                db.execute("VACUUM")
    _shrink_log(db)
    return problem


def _may_not_vacuum(db: Database, page: int) -> str | None:
    needed = (_number(db, "page_count") - _number(db, "freelist_count")) * page
    if has_any(db, ACTIVE):
        return "jobs are running"
    if needed > _MAX_VACUUM_BYTES:
        return "the rest of the database is too large to be copied at once"
    space = os.statvfs(db.folder)
    if space.f_bavail * space.f_frsize < 3 * needed:  # a temporary copy, and the log of it
        return "the disk has no space for a copy"
    return None


def _shrink_log(db: Database) -> None:
    """Checkpoint and truncate the write-ahead log without blocking writers for long."""
    db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()  # most of the work, without blocking
    timeout = _number(db, "busy_timeout")
    db.execute("PRAGMA busy_timeout=200")
    try:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.OperationalError:
        pass  # another process is reading: the next checkpoint truncates it
    finally:
        db.execute(f"PRAGMA busy_timeout={timeout}")


def _number(db: Database, pragma: str) -> int:
    return int(str(db.value(f"PRAGMA {pragma}")))
