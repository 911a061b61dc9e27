"""Snapshots of the database, in case the file is damaged; three are kept.

The newest is a second old, or more if the queue is large. The others are a minute or more apart,
in case damage is found late.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time

from stoker.engine.store.database import Database

_FOLDER = "snapshots"
_KEPT = 3
_SHORTEST_SECONDS = 1.0
_MAX_TIME_SHARE = 1 / 50  # of the thread's time that snapshots may take
_APART_SECONDS = 60.0


def newest(folder: str) -> list[str]:
    """Return the paths of the snapshots, newest first."""
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


class Snapshots:
    """Takes snapshots at intervals that grow with the size of the database."""

    def __init__(self) -> None:
        self._due_at = 0.0  # monotonic

    def seconds_left(self) -> float:
        """Seconds until the next snapshot may be taken."""
        return max(0.0, self._due_at - time.monotonic())

    def take(self, db: Database) -> None:
        started = time.monotonic()
        self._due_at = started + _SHORTEST_SECONDS  # if it fails
        take(db)
        ended = time.monotonic()
        self._due_at = ended + max(_SHORTEST_SECONDS, (ended - started) / _MAX_TIME_SHARE)


def take(db: Database) -> None:
    """Write a snapshot into the state folder. Reads every page, so it raises if one is damaged."""
    place = os.path.join(db.folder, _FOLDER)
    os.makedirs(place, 0o700, exist_ok=True)
    lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one at a time: `unfinished` is one file
        known = newest(db.folder)
        number = _number(os.path.basename(known[0])) + 1 if known else 1
        unfinished = os.path.join(place, "unfinished")
        if os.path.exists(unfinished):
            os.unlink(unfinished)
        db.execute("VACUUM INTO ?", (unfinished,))
        os.rename(unfinished, os.path.join(place, f"{number}.db"))
        for path in known[:1] if _are_close(known[:2]) else known[_KEPT - 1 :]:
            os.unlink(path)
    finally:
        os.close(lock)


def _are_close(paths: list[str]) -> bool:
    """Whether a snapshot and the one before it were taken within a minute."""
    times = [os.stat(path).st_mtime for path in paths]
    return len(times) == 2 and 0 <= times[0] - times[1] < _APART_SECONDS


def is_sound(path: str) -> bool:
    """Whether SQLite finds no damage in a snapshot."""
    try:
        connection = sqlite3.connect(path)
        try:
            return bool(connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok")
        finally:
            connection.close()
    except sqlite3.Error:
        return False
