"""A program whose tasks failed does not exit with 0, although `start` returns as if nothing were.

Programs go on after `start`: they collect results, or start the next stage. So failures show only
at the very end. An exit handler would cut off those registered before it, and files that nobody has
closed would lose what is not written yet; `sys` is what the interpreter gives up last of all.

A program that exits with a code of its own keeps that. It is not written down anywhere: an
exception that nobody caught is in `sys`, and what `sys.exit` was given is known only to whoever
stands in its place. (Not so for a bare `raise SystemExit(7)`, for which nobody can.)
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
        # At that time, modules have lost their names.
        self._getpid: Callable[[], int] = os.getpid
        self._leave: Callable[[int], object] = os._exit

    def see(self) -> None:
        """Whether the program ends by an exception: Python is about to print it, or has."""
        error: Any = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        trace = None if error is None else error.__traceback__
        if trace is not None and trace.tb_frame.f_back is None:  # not that of some callback
            self.has_own_code = True

    def __del__(self) -> None:
        # A fork of this process has its own code.
        if self._getpid() == self._pid and not self.has_own_code:
            self._leave(self.code)


class _Exit(SystemExit):
    """Python asks for its code when the program ends by it, and nobody else calls then."""

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
    """So many tasks have failed."""
    if not count or wants_zero():
        return
    known = getattr(sys, _NAME, None)
    if known is None:
        known = _Failed()
        setattr(sys, _NAME, known)
        atexit.register(known.see)
        sys.exit = _exit
        builtins.exit = builtins.quit = _exit  # type: ignore[assignment]
    known.count += count
    known.code = Summary(0, known.count, False).exit_code()
