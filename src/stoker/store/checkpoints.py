"""Durability off the dispatch path: a thread syncs the queue to disk while the loop goes on.

The loop commits without waiting for the disk, so a freed GPU never does either. Shortly after, this
thread checkpoints the write-ahead log, which syncs it; a power cut can cost the last moments of
*ends* (such a job then shows as `lost`), never an acknowledged submit, which syncs by itself.
"""

from __future__ import annotations

import sqlite3
import threading

from stoker.errors import Error
from stoker.store.backups import Snapshots
from stoker.store.database import Database, open_database

_INTERVAL_SECONDS = 0.5


class Checkpoints:
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.trouble: str | None = None  # for the loop to report
        self._wanted = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="checkpoints", daemon=True)
        self._thread.start()

    def request(self) -> None:
        """Something was committed; sync it soon."""
        self._wanted.set()

    def close(self) -> None:
        self._closing.set()
        self._wanted.set()
        self._thread.join(timeout=10)

    def _work(self) -> None:
        db: Database | None = None
        try:
            snapshots = Snapshots(self._folder)
            while not self._closing.is_set():
                self._wanted.wait()
                self._wanted.clear()
                try:
                    if db is None:
                        db = open_database(self._folder, timeout=1.0)
                    db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
                    if snapshots.is_due():
                        snapshots.take(db)
                except (sqlite3.Error, OSError, Error) as error:
                    # A full or failing disk: the next request tries again.
                    self.trouble = str(error)
                self._closing.wait(_INTERVAL_SECONDS)
        finally:
            if db is not None:
                db.close()
