"""Shows how far jobs are while a process waits for them.

The process that waits calls `refresh` whenever it wakes up: after each commit of the daemon, and
at least every two seconds (client/live/change_feed.py). There is no thread and no timer of its own.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable

from stoker.client.live.progress_output import progress_output
from stoker.errors import Error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.client.live.progress_output import ProgressOutput
    from stoker.client.live.wait_progress import WaitedIds, WaitedSet
    from stoker.engine.store.database import Database
    from stoker.settings import Settings

_LEAST_SECONDS = 0.2  # between two readings
# A reading takes milliseconds for a few jobs and more for thousands; the wait stays idle mostly.
_PAUSE_FACTOR = 20


class WaitDisplay:
    """The progress of some jobs, on a terminal or in a notebook; nothing elsewhere.

    `open_database` returns the connection of the calling thread. `ids`: see `WaitedIds`.
    `wanted`: see `progress_output`. `delay`: seconds before the first line, so that a short wait
    shows nothing.
    """

    def __init__(
        self,
        settings: Settings,
        open_database: Callable[[], Database],
        ids: WaitedIds,
        *,
        wanted: bool | None = None,
        planned: int | None = None,
        delay: float = 0.0,
    ) -> None:
        self._output: ProgressOutput | None = progress_output(wanted)
        self._settings = settings
        self._open_database = open_database
        self._ids = ids
        self._planned = planned
        self._set: WaitedSet | None = None
        self._due_at = time.monotonic() + delay

    @property
    def is_shown(self) -> bool:
        """Whether there is an output; otherwise all calls do nothing."""
        return self._output is not None

    def refresh(self) -> None:
        """Show the current numbers if they are due."""
        began = time.monotonic()
        if self._output is None or began < self._due_at:
            return
        text = self._read()
        if text is not None:
            self._output.show(text)
        took = time.monotonic() - began
        self._due_at = began + max(_LEAST_SECONDS, _PAUSE_FACTOR * took)

    def clear(self) -> None:
        """Remove the line, so that other output can follow."""
        if self._output is not None:
            self._output.clear()

    def close(self) -> None:
        """Remove the line; a notebook keeps the final numbers."""
        if self._output is not None:
            has_last = self._output.stays and self._set is not None
            self._output.close((self._read() or "") if has_last else "")
            self._output = None

    def _read(self) -> str | None:
        """The line; None if it cannot be read now: the wait itself reports errors."""
        try:
            db = self._open_database()
            if self._set is None:
                from stoker.client.live.wait_progress import WaitedSet

                self._set = WaitedSet(self._settings, self._ids, self._planned)
            return self._set.progress(db).words()
        except (Error, OSError, sqlite3.Error):
            return None
