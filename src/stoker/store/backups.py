"""Copies of the queue against damage of the file itself; the newest three are kept."""

from __future__ import annotations

import os
import sqlite3
import time

from stoker.store.database import Database

_FOLDER = "snapshots"
_KEPT = 3
_SHORTEST_SECONDS = 60.0
_SHARE = 1 / 200  # of its time that the thread may spend on copies


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


def is_sound(path: str) -> bool:
    """Whether SQLite finds nothing wrong with a snapshot."""
    try:
        connection = sqlite3.connect(path)
        try:
            return bool(connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok")
        finally:
            connection.close()
    except sqlite3.Error:
        return False
