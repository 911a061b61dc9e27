"""Copies of the queue against damage of the file itself; the newest three are kept."""

from __future__ import annotations

import os
import sqlite3
import time

from stoker.core.record import Record
from stoker.core.states import HELD
from stoker.store.database import FILE_NAME, Database, open_database

_FOLDER = "snapshots"
_KEPT = 3
_SHORTEST_SECONDS = 60.0
_SHARE = 1 / 200  # of its time that the thread may spend on copies
# Jobs that were submitted after the snapshot and never started have left no trace but their ids.
_ID_MARGIN = 100_000


def newest(folder: str) -> list[str]:
    """Paths of the snapshots, newest first."""
    place = os.path.join(folder, _FOLDER)
    try:
        names = sorted(
            (name for name in os.listdir(place) if name.endswith(".db")), key=_number, reverse=True
        )
    except FileNotFoundError:
        return []
    return [os.path.join(place, name) for name in names]


def _number(name: str) -> int:
    digits = name.removesuffix(".db")
    return int(digits) if digits.isdigit() else 0


class Restored(Record):
    """What came of a repair."""

    moved_to: str  # where the damaged file is now
    snapshot: str | None = None  # what was put in its place; None: an empty queue
    taken_at: float | None = None
    jobs: int = 0
    newest_job: int = 0  # in the snapshot
    newest_log: int = 0  # the newest job that has left a log


class Snapshots:
    """Takes one now and then: the larger the queue, the more rarely."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._pause = _SHORTEST_SECONDS

    def is_due(self) -> bool:
        known = newest(self._folder)
        return not known or not 0 <= time.time() - os.stat(known[0]).st_mtime < self._pause

    def take(self, db: Database) -> None:
        began = time.monotonic()
        take(db)
        self._pause = max(_SHORTEST_SECONDS, (time.monotonic() - began) / _SHARE)


def take(db: Database) -> None:
    """Copy the queue beside it. Reads every page, so damage shows here first."""
    place = os.path.join(db.folder, _FOLDER)
    os.makedirs(place, 0o700, exist_ok=True)
    known = newest(db.folder)
    number = _number(os.path.basename(known[0])) + 1 if known else 1
    unfinished = os.path.join(place, "unfinished")
    if os.path.exists(unfinished):
        os.unlink(unfinished)
    db.execute("VACUUM INTO ?", (unfinished,))
    os.rename(unfinished, os.path.join(place, f"{number}.db"))
    for path in known[_KEPT - 1 :]:
        os.unlink(path)


def restore(folder: str) -> Restored:
    """Move a damaged queue aside and put the newest sound snapshot in its place.

    What waited in the snapshot may have run since it was taken, so it comes back held: nothing runs
    twice unasked.
    """
    aside = os.path.join(folder, f"damaged-{int(time.time())}")
    os.makedirs(aside, 0o700)
    for suffix in ("", "-wal", "-shm"):
        path = os.path.join(folder, FILE_NAME + suffix)
        if os.path.exists(path):
            os.rename(path, os.path.join(aside, FILE_NAME + suffix))
    for snapshot in newest(folder):
        if _is_sound(snapshot):
            taken_at = os.stat(snapshot).st_mtime
            jobs, last = _put_back(folder, snapshot)
            return Restored(aside, snapshot, taken_at, jobs, last, _highest_id(folder))
    db = open_database(folder, anew=True)
    with db.transaction():
        _skip_ids(db.connection, folder)
    db.close()
    return Restored(aside, newest_log=_highest_id(folder))


def _is_sound(path: str) -> bool:
    try:
        connection = sqlite3.connect(path)
        try:
            return bool(connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok")
        finally:
            connection.close()
    except sqlite3.Error:
        return False


def _put_back(folder: str, snapshot: str) -> tuple[int, int]:
    path = os.path.join(folder, FILE_NAME)
    with (
        open(snapshot, "rb") as source,
        open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as target,
    ):
        while block := source.read(1 << 20):
            target.write(block)
        target.flush()
        os.fsync(target.fileno())
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(
        "INSERT INTO events (job, at, kind, data) SELECT id, ?, 'restored',"
        " 'held, because it may have run since' FROM jobs WHERE state = 'queued'",
        (time.time(),),
    )
    connection.execute("UPDATE jobs SET state = ?, ready = 0 WHERE state = 'queued'", (HELD,))
    _skip_ids(connection, folder)
    connection.execute("COMMIT")
    jobs, last = connection.execute("SELECT count(*), coalesce(max(id), 0) FROM jobs").fetchone()
    connection.close()
    return int(jobs), int(last)


def _skip_ids(connection: sqlite3.Connection, folder: str) -> None:
    """Ids that were given out after the snapshot must not come back for other jobs."""
    connection.execute(
        "UPDATE meta SET value = max(value, ?) + ? WHERE key = 'next_job'",
        (_highest_id(folder), _ID_MARGIN),
    )


def _highest_id(folder: str) -> int:
    place = os.path.join(folder, "jobs")
    highest = 0
    for group in os.listdir(place) if os.path.isdir(place) else []:
        for name in os.listdir(os.path.join(place, group)):
            digits = name.partition("-")[0]
            highest = max(highest, int(digits) if digits.isdigit() else 0)
    return highest
