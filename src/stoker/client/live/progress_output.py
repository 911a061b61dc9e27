"""Where a progress line appears: a terminal, a notebook, or lines in a file."""

from __future__ import annotations

import os
import sys
import time

from stoker.text.terminal import cut, printable, width

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    class ProgressOutput(Protocol):
        stays: bool  # the final text remains visible

        def show(self, text: str) -> None:
            """Show this line instead of the last one."""

        def clear(self) -> None:
            """Remove the line, so that other output can follow."""

        def close(self, last: str) -> None:
            """End the display; `last` is the final text for outputs that stay."""


_LEAST_BEGIN = 25  # columns for the bar before an ETA
_LINE_SECONDS = 5.0  # between two lines in a file


def progress_output(wanted: bool | None) -> ProgressOutput | None:
    """Return where to show progress; None: nowhere.

    `wanted`: True always, False never, None on a terminal or in a notebook.
    """
    if wanted is False:
        return None
    shell = _notebook_shell()
    if shell is not None:
        return NotebookLine()
    if is_terminal():
        return TerminalLine()
    return FileLines() if wanted else None


def is_terminal() -> bool:
    """Whether stderr is a terminal on which a line can be redrawn."""
    try:
        return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    except (AttributeError, ValueError):  # None, or closed
        return False


def _notebook_shell() -> Any:
    """The IPython shell of a kernel; None in a terminal or without IPython."""
    module = sys.modules.get("IPython")  # imported by the kernel, if there is one
    if module is None:
        return None
    shell = getattr(module, "get_ipython", lambda: None)()
    return shell if getattr(shell, "kernel", None) is not None else None


class TerminalLine:
    """One line on stderr, written again only when it changes."""

    stays = False

    def __init__(self) -> None:
        self._shown = ""

    def show(self, text: str) -> None:
        line = _fitted(printable(text), max(10, _columns() - 1))
        if line != self._shown:
            self._shown = line  # first: Ctrl-C may come before the end of the writing
            _write(f"\r\x1b[K{line}")

    def clear(self) -> None:
        if self._shown:
            _write("\r\x1b[K")
            self._shown = ""

    def close(self, last: str) -> None:
        self.clear()


class FileLines:
    """A line for each change, at most one every five seconds; times alone are not a change."""

    stays = True

    def __init__(self) -> None:
        self._shown = ""
        self._at = -_LINE_SECONDS

    def show(self, text: str) -> None:
        now, known = time.monotonic(), text.partition(", ETA ")[0]
        if known != self._shown and now - self._at >= _LINE_SECONDS:
            _write(f"{printable(text)}\n")
            self._shown, self._at = known, now

    def clear(self) -> None:
        pass

    def close(self, last: str) -> None:
        if last.partition(", ETA ")[0] not in ("", self._shown):
            _write(f"{printable(last)}\n")


class NotebookLine:
    """Plain text in the output of a notebook cell, which IPython replaces in place."""

    stays = True

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown = ""

    def show(self, text: str) -> None:
        text = printable(text)
        if text == self._shown:
            return
        self._shown = text
        content = {"text/plain": text}
        if self._handle is None:
            from importlib import import_module

            display = import_module("IPython.display").display
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

    def clear(self) -> None:
        pass  # other output of the cell appears below

    def close(self, last: str) -> None:
        if self._handle is not None and last:
            self.show(last)


def _fitted(text: str, columns: int) -> str:
    """A line that fits: its end, the ETA, stays if there is room."""
    begin, comma, eta = text.partition(", ETA ")
    room = columns - width(comma + eta)
    return cut(begin, room) + comma + eta if room >= _LEAST_BEGIN else cut(text, columns)


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80  # 0: unknown
    except (OSError, ValueError):
        return 80


def _write(text: str) -> None:
    """Write to stderr; a closed terminal or a full disk does not end the wait."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        pass
