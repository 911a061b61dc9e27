"""Read-only access to the queue for the usage recorder, which never migrates or blocks it."""

from __future__ import annotations

import os
import sqlite3

from stoker.engine.store.database import FILE_NAME
from stoker.engine.store.device_column import parse_device_numbers
from stoker.features.history.store_usage import open_for_reading
from stoker.record import Record
from stoker.states import ACTIVE


class RunningAttempt(Record):
    """A running attempt."""

    attempt: int
    job: int
    devices: tuple[int, ...]


class QueueReader:
    """Read-only access to the queue for the usage recorder; it never blocks writers."""

    def __init__(self, folder: str) -> None:
        self._db = open_for_reading(os.path.join(folder, FILE_NAME))

    def tag(self) -> int:
        return int(self._db.execute("SELECT value FROM meta WHERE key = 'tag'").fetchone()[0])

    def running(self) -> list[RunningAttempt]:
        marks = ", ".join("?" * len(ACTIVE))
        rows = self._db.execute(
            "SELECT a.id, a.job, a.devices FROM jobs j JOIN attempts a ON a.id = j.attempt"
            f" WHERE j.state IN ({marks})",
            tuple(ACTIVE),
        )
        return [RunningAttempt(id, job, parse_device_numbers(devices)) for id, job, devices in rows]

    def gpus(self) -> dict[int, str]:
        """Return the UUIDs of GPUs by number."""
        return dict(self._db.execute("SELECT number, uuid FROM devices"))

    def is_gone(self, job: int) -> bool:
        try:
            return self._db.execute("SELECT 1 FROM jobs WHERE id = ?", (job,)).fetchone() is None
        except sqlite3.Error:
            return False  # unknown now; checked again later

    def close(self) -> None:
        self._db.close()
