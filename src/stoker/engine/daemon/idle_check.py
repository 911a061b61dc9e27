"""Compares the decisions of the loop with those of a fresh snapshot, and counts idle GPUs.

The work does not grow with the queue, because a snapshot is bounded, and it is done twice a minute.
"""

from __future__ import annotations

import sqlite3

from stoker.engine.daemon.interfaces import Clock
from stoker.engine.daemon.loop import Loop
from stoker.engine.model import Start
from stoker.engine.store import job_queries
from stoker.engine.store.idle_counts import add_idle_time
from stoker.errors import Error


class IdleCheck:
    """Keeps when the last check was made, so that idle time is not counted twice."""

    def __init__(self, loop: Loop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._checked_at = clock.mono()
        self._was_idle = False  # a GPU, at the last check

    def missed_starts(self) -> list[Start]:
        """Return the starts that the loop missed, and count the time that GPUs were idle for it.

        The result is empty unless a cache of the loop is out of date, which is a defect.
        """
        now = self._clock.mono()
        try:
            missed = self._loop.missed_starts()
            on_gpus = [start for start in missed if start.devices]
            if on_gpus:
                self._count(on_gpus, now)
        except (sqlite3.Error, Error):
            return []  # the database is busy or the disk is full; the next check is soon
        self._checked_at, self._was_idle = now, bool(on_gpus)
        return missed

    def _count(self, missed: list[Start], now: float) -> None:
        db = self._loop.db
        submitted = min(job_queries.job(db, start.job).submitted_at for start in missed)
        wall = self._clock.wall()
        seconds = max(0.0, min(now - self._checked_at, wall - submitted))
        with db.transaction():
            add_idle_time(db, seconds, wall, is_new=not self._was_idle)
