"""A progress line for commands that may take many seconds."""

from __future__ import annotations

import sys

from stoker.cli.output import notice


class ProgressLine:
    """A line on stderr that is redrawn on a terminal; prints nothing elsewhere."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr is not None and sys.stderr.isatty()
        self._is_empty = True

    def write(self, text: str) -> None:
        if self._is_shown:
            notice(f"\r\x1b[K{text}", end="")
            self._is_empty = not text

    def clear(self) -> None:
        if not self._is_empty:
            self.write("")
