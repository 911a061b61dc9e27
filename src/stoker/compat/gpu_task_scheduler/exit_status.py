"""Make a program whose tasks failed exit with their number, although `start` returns normally.

Programs continue after `start`: they collect results or start the next stage. So the exit code is
set at the very end. An atexit handler that exits would skip handlers registered earlier and lose
unflushed files; instead, an object in `sys`, which the interpreter destroys last, exits.

A program that exits with its own non-zero code keeps it. Python does not store that code: an
uncaught exception is found in `sys`, and the argument of `sys.exit` by replacing `sys.exit`. The
code of a bare `raise SystemExit(7)` cannot be detected.
"""

from __future__ import annotations

import atexit
import builtins
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from stoker.compat.foreground.jobs import Summary, wants_zero

_NAME = "_stoker_failed_tasks"


class _Failed:
    def __init__(self) -> None:
        self.count = 0
        self.code = 0
        self.has_own_code = False
        self._pid = os.getpid()
        # Module globals are already gone when __del__ runs.
        self._getpid: Callable[[], int] = os.getpid
        self._exit: Callable[[int], object] = os._exit

    def check_exception(self) -> None:
        """Keep the exit code of a program that ends with an uncaught exception."""
        error: Any = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        trace = None if error is None else error.__traceback__
        if (
            trace is not None and trace.tb_frame.f_back is None
        ):  # at module level, not in a callback
            self.has_own_code = True

    def __del__(self) -> None:
        # A fork of this process keeps its own exit code.
        if self._getpid() == self._pid and not self.has_own_code:
            self._exit(self.code)


class _Exit(SystemExit):
    """A SystemExit that notices when the interpreter itself reads its code at the end."""

    @property
    def code(self) -> Any:  # type: ignore[override]
        found = self.args[0] if len(self.args) == 1 else self.args or None
        known = getattr(sys, _NAME, None)
        if sys._getframe().f_back is None and known is not None:
            is_zero = found is None or (isinstance(found, int) and found & 0xFF == 0)
            known.has_own_code = not is_zero
        return found


def _exit(status: Any = None, /) -> NoReturn:
    raise _Exit(*status if isinstance(status, tuple) else (status,))


def count_failed(count: int) -> None:
    """Add to the number of failed tasks, which becomes the exit code."""
    if not count or wants_zero():
        return
    known = getattr(sys, _NAME, None)
    if known is None:
        known = _Failed()
        setattr(sys, _NAME, known)
        atexit.register(known.check_exception)
        sys.exit = _exit
        builtins.exit = builtins.quit = _exit  # type: ignore[assignment]
    known.count += count
    known.code = Summary(0, known.count, False).exit_code()
