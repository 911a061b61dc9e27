"""Keeps Stoker's logs of attempts below their size limit, and completes them at the end."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from stoker.engine.supervisor.empty_logs import EmptyLogs
from stoker.engine.supervisor.logs import cap_log
from stoker.engine.supervisor.messages import Order
from stoker.engine.supervisor.running_attempt import RunningAttempt
from stoker.text.byte_text import to_system

# Between checks of the size of logs: short after a start, and while a log grows fast.
_MIN_CHECK_SECONDS = 0.05
_MAX_CHECK_SECONDS = 0.5


class LogLimits:
    """`empty_logs` records empty logs and removes them; without it, only jobs that succeeded
    lose theirs."""

    def __init__(self, limit: int, empty_logs: EmptyLogs | None) -> None:
        self._limit = limit
        self._empty_logs = empty_logs
        self._pause = _MIN_CHECK_SECONDS
        self.next_check = 0.0

    def check_soon(self, now: float, *, is_first: bool) -> None:
        """An attempt starts; `is_first`: there is no other."""
        self._pause = _MIN_CHECK_SECONDS
        due = now + _MIN_CHECK_SECONDS
        self.next_check = due if is_first else min(due, self.next_check)

    def check(self, attempts: Iterable[RunningAttempt], now: float) -> None:
        """Cap the logs that are too long; if one grows fast, check again soon."""
        is_fast = False
        for attempt in attempts:
            if attempt.order.own_log and attempt.order.stdout is not None:
                size = cap_log(attempt.order.stdout, self._limit)
                is_fast |= size - attempt.log_size > self._limit // 64
                attempt.log_size = size
        pause = _MIN_CHECK_SECONDS if is_fast else 2 * self._pause
        self._pause = min(pause, _MAX_CHECK_SECONDS)
        self.next_check = now + self._pause

    def finish(self, order: Order, status: int | None) -> None:
        """Remove an empty log, and cut one that is too long; a file the user chose is kept."""
        if not order.own_log or order.stdout is None:
            return
        try:
            size = os.stat(order.stdout).st_size
        except OSError:
            return
        if size > self._limit:
            cap_log(order.stdout, self._limit)
        elif size or order.settings.keep_children:
            return
        elif self._empty_logs is not None:
            self._empty_logs.remove(order.stdout)
        elif not status:
            with suppress(OSError):
                os.unlink(order.stdout)


def note_leftovers(order: Order, names: str) -> None:
    """Write the last line of a log, about processes that were stopped."""
    line = f"stoker: the command has exited; stopped what it left running: {names}\n"
    try:
        if order.stdout is not None and os.path.isfile(order.stdout):
            with open(order.stdout, "ab", buffering=0) as file:
                file.write(to_system(line))
    except OSError:
        pass  # the database has it too
