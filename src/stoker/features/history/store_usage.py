"""Usage history: what GPUs and jobs used over time, in a database of its own.

STATE/traces.db is independent of the queue: if it is slow, full, damaged or deleted, only charts
are affected. One process writes (features/history/usage_recorder.py), any number may read.

Each call of `append` adds one small row per track to `recent`, which changes one or two pages. When
a track has enough rows for a block, all of `recent` is packed into `blocks`. After a day, a block
keeps only the minimum and maximum of every five minutes; after a month, or earlier if the file gets
too large, it is deleted. Every call does a little of this work, in proportion to the rows that it
adds.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator

from stoker.features.history import store_gpus as gpu_history
from stoker.features.history.gpu_time import Interval
from stoker.features.history.store_gpus import FILE_NAME, open_for_reading
from stoker.features.history.time_series import (
    TICKS_PER_SECOND,
    TRACKS,
    Reading,
    coarsen,
    decode,
    encode,
)
from stoker.record import Record

__all__ = ["FILE_NAME", "TraceWriter", "TrackRow", "open_for_reading", "read"]

SCHEMA_VERSION = 2

# The names of track kinds in files of version 1.
_KINDS_OF_VERSION_1 = {"gpu": "card", "job_gpus": "share", "job_processes": "tree"}

FINE_SECONDS = 86400.0
COARSE_SECONDS = 30 * 86400.0
COARSE_STEP_SECONDS = 300.0  # that one pair of coarse readings covers
MAX_BYTES = 64 << 20

_BLOCK = 256  # readings of one track
_MAX_RECENT = 1 << 16  # rows, for any number of tracks
_CLEANUP_ROWS = 32  # the least rows that a call of `append` cleans up
_NEVER = 1 << 62  # later than any time
_SPARE_PAGES = 64  # free pages kept for the next blocks

_SCHEMA = """
CREATE TABLE tracks (
    id   INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,             -- see features/history/time_series.py
    key  TEXT NOT NULL,             -- the UUID of a GPU, the id of a job
    UNIQUE (kind, key)
);
CREATE TABLE recent (
    id    INTEGER PRIMARY KEY,
    track INTEGER NOT NULL,
    data  BLOB NOT NULL             -- one reading
);
CREATE TABLE blocks (
    id    INTEGER PRIMARY KEY,
    track INTEGER NOT NULL,
    level INTEGER NOT NULL,         -- 0: as sampled, 1: coarse
    last  INTEGER NOT NULL,         -- the latest time in it
    data  BLOB NOT NULL
);
CREATE INDEX blocks_by_track ON blocks (track, last);
CREATE INDEX blocks_by_age ON blocks (level, last);
"""

# Errors that may be temporary; any other error means that the file is damaged.
_TEMPORARY_ERRORS = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_INTERRUPT,
    }
)


class TrackRow(Record):
    """The values of one track at one time."""

    kind: str
    key: str
    values: tuple[int | None, ...]


class TraceWriter:
    """Writes the usage history. `tag` is that of the queue: history of another queue is removed."""

    def __init__(self, folder: str, tag: int, max_bytes: int = MAX_BYTES) -> None:
        self._path = os.path.join(folder, FILE_NAME)
        self._tag = tag
        self._max_bytes = max_bytes
        self.error: str | None = None  # why the last call was not recorded
        self._db: sqlite3.Connection | None = None
        self._inode = 0
        self._is_checked = False
        self._tracks: dict[tuple[str, str], int] = {}
        self._counts: dict[int, int] = {}  # rows in `recent`, by track
        self._last_checked_track = 0

    def append(
        self,
        now: float,
        rows: Iterable[TrackRow],
        is_gone: Callable[[int], bool],
        intervals: Iterable[Interval] = (),
    ) -> None:
        """Record readings and what GPUs did, and clean up a little.

        `is_gone` returns whether a job was removed.
        """
        try:
            db = self._opened()
            db.execute("BEGIN IMMEDIATE")
            self._append(db, round(now * TICKS_PER_SECOND), rows)
            if self._is_full() or _is_old(db, now):
                self._seal(db)
            gpu_history.save(db, intervals)
            self._clean_up(db, now, is_gone)
            gpu_history.clean_up(db, now)
            db.execute("COMMIT")
            self.error = None
        except (sqlite3.Error, OSError, ValueError, TypeError, OverflowError) as error:
            self._drop_rows(error)  # the last three: rows that only a damaged file can have

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    # -- the file ------------------------------------------------------------------------------

    def _opened(self) -> sqlite3.Connection:
        if self._db is not None:
            try:
                if os.stat(self._path).st_ino == self._inode:
                    return self._db
            except FileNotFoundError:
                pass
            self.close()  # the file was deleted or replaced
        # Other users must not read what jobs do.
        os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        self._db = db = _connect(self._path)
        if not self._is_ours(db):
            self._remove()
            os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            self._db = db = _connect(self._path)
            self._create(db)
        elif _number(db, "user_version") == 1:
            _migrate_from_version_1(db)
        db.executescript(gpu_history.SCHEMA)
        self._inode = os.stat(self._path).st_ino
        db.execute("PRAGMA synchronous=NORMAL")
        # A small log: the same few pages are written again and again.
        db.execute("PRAGMA wal_autocheckpoint=256")
        db.execute(f"PRAGMA journal_size_limit={1 << 20}")
        db.execute("PRAGMA cache_size=-1024")
        self._tracks.clear()
        self._counts = dict(db.execute("SELECT track, count(*) FROM recent GROUP BY track"))
        return db

    def _is_ours(self, db: sqlite3.Connection) -> bool:
        version = _number(db, "user_version")
        if version not in (1, SCHEMA_VERSION) or _number(db, "application_id") != self._tag:
            return False
        if not self._is_checked:  # only once, because it reads the whole file
            self._is_checked = True
            return bool(db.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")
        return True

    def _create(self, db: sqlite3.Connection) -> None:
        db.execute("PRAGMA auto_vacuum=INCREMENTAL")
        db.execute("PRAGMA journal_mode=WAL")
        db.executescript(
            f"BEGIN; {_SCHEMA} PRAGMA application_id={self._tag};"
            f" PRAGMA user_version={SCHEMA_VERSION}; COMMIT;"
        )

    def _remove(self) -> None:
        self.close()
        for end in ("", "-wal", "-shm"):
            try:
                os.unlink(self._path + end)
            except FileNotFoundError:
                pass

    def _drop_rows(self, error: Exception) -> None:
        """Drop these rows, and reopen the file at the next one."""
        self.error = f"usage history is not recorded: {error}"
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        try:
            self.close()
            if not isinstance(error, OSError) and code not in _TEMPORARY_ERRORS:
                self._remove()
        except (sqlite3.Error, OSError):
            self._db = None

    # -- adding --------------------------------------------------------------------------------

    def _append(self, db: sqlite3.Connection, at: int, rows: Iterable[TrackRow]) -> None:
        made = []
        for kind, key, values in rows:
            track = self._track(db, kind, key)
            self._counts[track] = self._counts.get(track, 0) + 1
            made.append((track, encode([(at, values)])))
        db.executemany("INSERT INTO recent (track, data) VALUES (?, ?)", made)

    def _track(self, db: sqlite3.Connection, kind: str, key: str) -> int:
        known = self._tracks.get((kind, key))
        if known is None:
            db.execute("INSERT OR IGNORE INTO tracks (kind, key) VALUES (?, ?)", (kind, key))
            query = "SELECT id FROM tracks WHERE kind = ? AND key = ?"
            known = int(db.execute(query, (kind, key)).fetchone()[0])
            self._tracks[kind, key] = known
        return known

    def _is_full(self) -> bool:
        most = max(self._counts.values(), default=0)
        return most >= _BLOCK or sum(self._counts.values()) >= _MAX_RECENT

    def _seal(self, db: sqlite3.Connection) -> None:
        """Pack the rows of `recent` into blocks."""
        by_track: dict[int, list[Reading]] = {}
        for track, data in db.execute("SELECT track, CAST(data AS BLOB) FROM recent ORDER BY id"):
            readings = by_track.setdefault(track, [])
            new = _readings(data)
            if not readings or not new or len(new[0][1]) == len(readings[0][1]):
                readings += new
        db.executemany(
            "INSERT INTO blocks (track, level, last, data) VALUES (?, 0, ?, ?)",
            [
                (track, max(at for at, _ in readings), encode(readings))
                for track, readings in by_track.items()
                if readings
            ],
        )
        db.execute("DELETE FROM recent")
        self._counts.clear()
        self._tracks.clear()  # otherwise tracks of finished jobs would stay in memory

    # -- cleaning up ---------------------------------------------------------------------------

    def _clean_up(self, db: sqlite3.Connection, now: float, is_gone: Callable[[int], bool]) -> None:
        work = _CLEANUP_ROWS + 2 * len(self._counts)  # more rows than one call adds
        self._make_coarse(db, round((now - FINE_SECONDS) * TICKS_PER_SECOND), work)
        _delete_oldest(db, 1, round((now - COARSE_SECONDS) * TICKS_PER_SECOND), work)
        spare = _number(db, "freelist_count")
        if (_number(db, "page_count") - spare) * _number(db, "page_size") > self._max_bytes:
            left = work - _delete_oldest(db, 1, _NEVER, work)
            _delete_oldest(db, 0, _NEVER, left)
        if spare > _SPARE_PAGES:
            db.execute(f"PRAGMA incremental_vacuum({work})").fetchall()
        self._remove_tracks(db, is_gone, work)

    def _make_coarse(self, db: sqlite3.Connection, before: int, work: int) -> None:
        rows = db.execute(
            "SELECT id, track, last, CAST(data AS BLOB) FROM blocks"
            " WHERE level = 0 AND last < ? ORDER BY last LIMIT ?",
            (before, work),
        ).fetchall()
        width = round(COARSE_STEP_SECONDS * TICKS_PER_SECOND)
        # New rows instead of updates: SQLite does not merge pages whose rows shrink.
        db.executemany("DELETE FROM blocks WHERE id = ?", [(id,) for id, *_ in rows])
        db.executemany(
            "INSERT INTO blocks (track, level, last, data) VALUES (?, 1, ?, ?)",
            [
                (track, last, encode(coarsen(_readings(data), width)))
                for _, track, last, data in rows
            ],
        )

    def _remove_tracks(
        self, db: sqlite3.Connection, is_gone: Callable[[int], bool], work: int
    ) -> None:
        """Check a few more tracks, and remove empty ones and those of removed jobs."""
        rows = db.execute(
            "SELECT id, kind, key FROM tracks WHERE id > ? ORDER BY id LIMIT ?",
            (self._last_checked_track, _CLEANUP_ROWS),
        ).fetchall()
        self._last_checked_track = 0
        for id, kind, key in rows:
            if id not in self._counts:
                if kind != "gpu" and is_gone(int(key)):
                    work -= db.execute(
                        "DELETE FROM blocks WHERE id IN"
                        " (SELECT id FROM blocks WHERE track = ? LIMIT ?)",
                        (id, work),
                    ).rowcount
                    if work <= 0:
                        return  # this track may have more blocks
                if db.execute("SELECT 1 FROM blocks WHERE track = ? LIMIT 1", (id,)).fetchone():
                    continue
                db.execute("DELETE FROM tracks WHERE id = ?", (id,))
                self._tracks.pop((kind, key), None)
        if len(rows) == _CLEANUP_ROWS:
            self._last_checked_track = rows[-1][0]


def _is_old(db: sqlite3.Connection, now: float) -> bool:
    """Whether the oldest row of `recent` should be packed now."""
    row = db.execute("SELECT CAST(data AS BLOB) FROM recent ORDER BY id LIMIT 1").fetchone()
    readings = [] if row is None else _readings(row[0])
    return bool(readings) and readings[0][0] < (now - FINE_SECONDS) * TICKS_PER_SECOND


def _delete_oldest(db: sqlite3.Connection, level: int, before: int, most: int) -> int:
    return db.execute(
        "DELETE FROM blocks WHERE id IN"
        " (SELECT id FROM blocks WHERE level = ? AND last < ? ORDER BY last LIMIT ?)",
        (level, before, most),
    ).rowcount


def _migrate_from_version_1(db: sqlite3.Connection) -> None:
    """Rename the kinds of tracks, in one transaction."""
    db.execute("BEGIN IMMEDIATE")
    db.executemany("UPDATE tracks SET kind = ? WHERE kind = ?", _KINDS_OF_VERSION_1.items())
    db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    db.execute("COMMIT")


def _connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, timeout=1.0)


def _number(db: sqlite3.Connection, pragma: str) -> int:
    return int(db.execute(f"PRAGMA {pragma}").fetchone()[0])


def _readings(data: bytes | None) -> list[Reading]:
    try:
        return decode(data or b"")
    except ValueError:
        return []  # only this block is damaged


# -- reading ---------------------------------------------------------------------------------------


def read(
    folder: str, kind: str, key: str, since: float = float("-inf")
) -> Iterator[tuple[int, Reading]]:
    """Return (level, reading) in no particular order; empty if the file is missing or damaged."""
    earliest = -_NEVER if since == float("-inf") else round(since * TICKS_PER_SECOND)
    width = len(TRACKS[kind])
    for level, data in _blocks(os.path.join(folder, FILE_NAME), kind, key, earliest):
        for reading in _readings(data):
            if reading[0] >= earliest and len(reading[1]) == width:
                yield level, reading


def _blocks(path: str, kind: str, key: str, earliest: int) -> list[tuple[int, bytes | None]]:
    try:
        db = open_for_reading(path)
    except sqlite3.Error:
        return []
    try:
        db.execute("BEGIN")  # otherwise readings packed meanwhile could appear twice or not at all
        version = _number(db, "user_version")
        if version == 1:  # the recorder has not migrated it yet
            kind = _KINDS_OF_VERSION_1[kind]
        elif version != SCHEMA_VERSION:
            return []
        row = db.execute("SELECT id FROM tracks WHERE kind = ? AND key = ?", (kind, key)).fetchone()
        if row is None:
            return []
        return [
            *db.execute(
                "SELECT level IS 1, CAST(data AS BLOB) FROM blocks WHERE track = ? AND last >= ?",
                (row[0], earliest),
            ),
            *db.execute("SELECT 0, CAST(data AS BLOB) FROM recent WHERE track = ?", row),
        ]
    except (sqlite3.Error, ValueError, TypeError):  # errors about damage may not be valid UTF-8
        return []
    finally:
        db.close()
