"""A program whose tasks failed does not exit with 0, although `start` returns as if nothing were.

Programs go on after `start`: they collect results, or start the next stage. So failures show only
at the very end. An exit handler would cut off those registered before it, and files that nobody has
closed would lose what is not written yet; `sys` is what the interpreter gives up last of all.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from stoker.compat.jobs import Summary, wants_zero

_NAME = "_stoker_failed_tasks"


class _Failed:
    def __init__(self) -> None:
        self.count = 0
        self.code = 0
        self._pid = os.getpid()
        # At that time, modules have lost their names.
        self._getpid: Callable[[], int] = os.getpid
        self._leave: Callable[[int], object] = os._exit

    def __del__(self) -> None:
        if self._getpid() == self._pid:  # a fork of this process has its own code
            self._leave(self.code)


def count_failed(count: int) -> None:
    """So many tasks have failed."""
    if not count or wants_zero():
        return
    known = getattr(sys, _NAME, None)
    if known is None:
        known = _Failed()
        setattr(sys, _NAME, known)
    known.count += count
    known.code = Summary(0, known.count, False).exit_code()
