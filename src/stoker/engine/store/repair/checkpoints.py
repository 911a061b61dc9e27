"""A thread that syncs the database to disk, so that the loop does not wait for the disk.

The loop commits without a sync, so no GPU stays idle because of a slow disk. Shortly after, this
thread checkpoints the write-ahead log, which syncs it. A power cut can lose the last recorded ends
of jobs (such a job is then `lost`), but never an acknowledged submit, which syncs by itself.
"""

from __future__ import annotations

import sqlite3
import threading

from stoker.engine.store.database import Database, open_database
from stoker.engine.store.repair.backups import Snapshots
from stoker.errors import Error

_INTERVAL_SECONDS = 0.5


def checkpoint(db: Database) -> None:
    """Copy the write-ahead log into the database file, as far as no reader needs it."""
    db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


class Checkpoints:
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.error: str | None = None  # reported by the loop
        self._wanted = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="checkpoints", daemon=True)
        self._thread.start()

    def request(self) -> None:
        """Ask the thread to sync a new commit soon."""
        self._wanted.set()

    def close(self) -> None:
        self._closing.set()
        self._wanted.set()
        self._thread.join(timeout=10)

    def _work(self) -> None:
        db: Database | None = None
        try:
            snapshots, has_changed = Snapshots(), False  # since the last snapshot
            while not self._closing.is_set():
                is_wanted = self._wanted.wait(snapshots.seconds_left() if has_changed else None)
                self._wanted.clear()
                has_changed = has_changed or is_wanted
                try:
                    if db is None:
                        db = open_database(self._folder, timeout=1.0)
                    checkpoint(db)
                    if not snapshots.seconds_left():
                        snapshots.take(db)
                        has_changed = False
                except (sqlite3.Error, OSError, Error) as error:
                    # A full or failing disk: the thread retries at the next request.
                    self.error = str(error)
                self._closing.wait(_INTERVAL_SECONDS)
        finally:
            if db is not None:
                db.close()
