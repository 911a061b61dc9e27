"""Read a live state after each change of the queue, for as long as an interface shows it.

The daemon's change feed wakes the watcher; it reads at most four times a second, and after a few
seconds without a change, because times and GPU readings change too.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable

from stoker.client.live.change_feed import ChangeFeed
from stoker.client.live.live_state import LiveStateReader
from stoker.client.queue import Queue
from stoker.client.queue_connections import thread_queue
from stoker.engine.store.database import translate
from stoker.errors import Error
from stoker.settings import Settings

_MIN_INTERVAL_SECONDS = 0.25
_RETRY_SECONDS = 5.0


class StateWatcher:
    """Calls `refresh` in the thread of `run`, and `failed` if the queue cannot be read.

    `creates`: whether a queue that was removed is made again.
    """

    def __init__(
        self,
        settings: Settings,
        reader: LiveStateReader,
        refresh: Callable[[Queue], None],
        failed: Callable[[Error], None] | None = None,
        *,
        creates: bool = True,
    ) -> None:
        self._settings = settings
        self._reader = reader
        self._refresh = refresh
        self._failed = failed
        self._creates = creates
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def wake(self) -> None:
        """Read the state soon, without waiting for the change feed; called in any thread."""
        try:
            os.eventfd_write(self._wake_fd, 1)
        except BlockingIOError:
            pass

    def run(self, is_needed: Callable[[], bool]) -> None:
        """Watch until `is_needed` returns False; `wake` makes it check that."""
        feed = ChangeFeed(self._settings.state_dir)
        version, due = -1, 0.0
        try:
            while is_needed():
                is_woken = self._is_woken()
                now = time.monotonic()
                try:
                    queue = thread_queue(self._settings, creates=self._creates)
                    newest = queue.db.data_version()
                    if is_woken or newest != version or now >= due:
                        version = newest
                        self._refresh(queue)
                        due = time.monotonic() + (
                            self._reader.seconds_until_fresh() or self._reader.idle_seconds
                        )
                        # Collect several changes in one reading.
                        time.sleep(max(0.0, now + _MIN_INTERVAL_SECONDS - time.monotonic()))
                except (Error, sqlite3.Error) as error:  # e.g. a busy database or a full disk
                    due = now + _RETRY_SECONDS
                    if self._failed is not None:
                        self._failed(_as_error(error, self._settings.state_dir))
                had_daemon = feed.is_connected
                feed.wait(max(0.01, due - time.monotonic()), also=self._wake_fd)
                if feed.is_connected != had_daemon:  # it was stopped or started
                    due = 0.0
        finally:
            feed.close()

    def _is_woken(self) -> bool:
        try:
            return os.eventfd_read(self._wake_fd) > 0
        except BlockingIOError:
            return False


def _as_error(error: Error | sqlite3.Error, state_dir: str) -> Error:
    return translate(error, state_dir) if isinstance(error, sqlite3.Error) else error
