"""Keeps the driver alive while a sweep needs one (see stoker/driver.py)."""

from __future__ import annotations

import os
import signal
import sys

from stoker.settings import Settings
from stoker.store import sweeps
from stoker.store.database import Database

_COMMAND = [sys.executable, "-P", "-m", "stoker.driver"]
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0


class Mind:
    """Starts it when there is something to drive, and again when it dies over that."""

    def __init__(self, db: Database, settings: Settings) -> None:
        self._db = db
        self._settings = settings
        self._pid = 0
        self._handle: int | None = None
        self._pause = _FIRST_PAUSE
        self._not_before = 0.0
        self._is_wanted = False

    def descriptors(self) -> list[int]:
        """Readable when the driver has ended."""
        return [] if self._handle is None else [self._handle]

    def next_deadline(self) -> float | None:
        return self._not_before if self._is_wanted and self._handle is None else None

    def look(self, now: float, something_changed: bool) -> str | None:
        """Called in every turn; a text when there is trouble to tell of."""
        trouble = self._collect(now) if self._handle is not None else None
        if something_changed or trouble is not None:
            self._is_wanted = sweeps.has_driven(self._db)
        if self._is_wanted and self._handle is None and now >= self._not_before:
            self._start()
        return trouble

    def _start(self) -> None:
        env = dict(os.environ, STOKER_STATE_DIR=self._settings.state_dir)
        self._pid = os.posix_spawn(
            sys.executable,
            [*_COMMAND, str(os.getpid())],
            env,
            setsid=True,
            setsigdef=[signal.SIGHUP, signal.SIGCHLD],
        )
        self._handle = os.pidfd_open(self._pid)

    def _collect(self, now: float) -> str | None:
        assert self._handle is not None
        try:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
        except ChildProcessError:  # collected together with orphans of jobs
            pid, status = self._pid, 1
        if not pid:
            return None
        os.close(self._handle)
        self._handle = None
        if status == 0:
            self._pause = _FIRST_PAUSE
            self._is_wanted = sweeps.has_driven(self._db)  # one that came as it left
            return None
        self._not_before = now + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return f"the driver of sweeps died (status {status}); it is started again"

    def close(self) -> None:
        """It holds nothing, so it may go at any time."""
        if self._handle is not None:
            try:
                signal.pidfd_send_signal(self._handle, signal.SIGTERM)
            except ProcessLookupError:
                pass
            os.close(self._handle)
            self._handle = None
