"""Progress of jobs while Python code waits for them; see client/live/wait_display.py."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import concurrent.futures

    from stoker.client.live.wait_display import WaitDisplay
    from stoker.client.live.wait_progress import WaitedIds
    from stoker.engine.store.database import Database
    from stoker.settings import Settings

_DELAY_SECONDS = 0.5  # a shorter wait shows nothing unless progress is asked for
_REFRESH_SECONDS = 1.0


class WaitLine:
    """A progress line that appears when the calling thread has to wait, and ends with the block.

    `wanted` is the argument `progress` of the caller: None shows the line on a terminal and in a
    notebook, in the main thread only, because lines of several threads would overwrite each other.

    with WaitLine(settings, ids, progress) as line:
        ...  # call line.refresh() before each wait
    """

    def __init__(
        self, settings: Settings, ids: WaitedIds, wanted: bool | None, planned: int | None = None
    ) -> None:
        self._settings = settings
        self._ids = ids
        self._wanted = wanted
        self._planned = planned
        self._display: WaitDisplay | None = None
        self.is_shown = self._is_wanted()

    def _is_wanted(self) -> bool:
        if self._wanted is not None:
            return self._wanted
        import threading

        if threading.current_thread() is not threading.main_thread():
            return False
        if "IPython" in sys.modules:
            return True  # `progress_output` decides
        try:
            return sys.stderr.isatty()
        except (AttributeError, ValueError):  # None, or closed
            return False

    def __enter__(self) -> WaitLine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._display is not None:
            self._display.close()
            self._display = None
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            print("interrupted: the jobs continue; `cancel()` stops them", file=sys.stderr)

    def refresh(self) -> None:
        """Show the current numbers."""
        if not self.is_shown:
            return
        if self._display is None:
            from stoker.client.live.wait_display import WaitDisplay

            self._display = WaitDisplay(
                self._settings,
                self._database,
                self._ids,
                wanted=self._wanted,
                planned=self._planned,
                delay=0.0 if self._wanted else _DELAY_SECONDS,
            )
            self.is_shown = self._display.is_shown
        self._display.refresh()

    def clear(self) -> None:
        """Remove the line, so that other output can follow."""
        if self._display is not None:
            self._display.clear()

    def _database(self) -> Database:
        from stoker.client.queue_connections import thread_queue

        return thread_queue(self._settings, creates=False).db


def wait_for_futures(
    line: WaitLine, futures: Iterable[concurrent.futures.Future[Any]], timeout: float | None
) -> None:
    """Wait until all futures are done, or for `timeout` seconds; refresh the line meanwhile."""
    from concurrent.futures import wait

    left = set(futures)
    deadline = None if timeout is None else time.monotonic() + timeout
    while left and line.is_shown:
        line.refresh()
        rest = None if deadline is None else deadline - time.monotonic()
        if rest is not None and rest <= 0:
            return
        pause = _REFRESH_SECONDS if rest is None else min(rest, _REFRESH_SECONDS)
        left = wait(left, pause).not_done
