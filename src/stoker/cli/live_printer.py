"""Print a log while it grows (`stoker log -f`), including lines that are not finished yet.

On a terminal, unfinished lines such as progress bars are redrawn below the finished ones. In a
pipe, text that is only appended is printed at once, and a rewritten line is printed again every few
seconds.
"""

from __future__ import annotations

import shutil
import sys
import time

from stoker.cli.verbs.log import Printer, encode
from stoker.text.terminal import cut

_UPDATE_SECONDS = 5.0  # between two versions of a rewritten line in a pipe


class LivePrinter(Printer):
    """A `Printer` that also shows unfinished lines."""

    def __init__(self) -> None:
        super().__init__()
        self._is_terminal = sys.stdout.isatty()
        self._drawn = 0  # unfinished lines on the terminal
        self._open = ""  # printed part of the unfinished line
        self._versions: list[str] = []  # rewritten lines as last printed
        self._update_at = 0.0
        self._has_update = False

    def feed(self, block: bytes) -> None:
        super().feed(block)
        self.update()

    def finish(self) -> None:
        self._erase()
        super().finish()
        if self._open:
            self._put("\n")

    def wait_seconds(self) -> float | None:
        """Seconds until a pending version is due; None if `update` has nothing to print."""
        return max(0.0, self._update_at - time.monotonic()) if self._has_update else None

    def update(self) -> None:
        """Show the unfinished lines."""
        rows = self._view.current()
        if self._is_terminal:
            self._draw(rows)
        elif self._view.is_rewritten:
            self._has_update = rows != self._versions
            if self._has_update and time.monotonic() >= self._update_at:
                self._print_versions(rows)
        elif len(rows) == 1 and rows[0].startswith(self._open):
            self._put(rows[0][len(self._open) :])
            self._open = rows[0]

    def _print_versions(self, rows: list[str]) -> None:
        text = "".join(f"{row}\n" for row in rows if row not in self._versions)
        self._put(f"\n{text}" if self._open else text)
        self._open, self._versions, self._has_update = "", rows, False
        self._update_at = time.monotonic() + _UPDATE_SECONDS

    def _draw(self, rows: list[str]) -> None:
        columns, height = shutil.get_terminal_size()
        shown = [cut(row.expandtabs(), columns - 1) for row in rows[-max(1, height - 1) :]]
        self._erase()
        self._put("\n".join(shown))
        self._drawn = len(shown)

    def _erase(self) -> None:
        if self._drawn:
            up = f"\x1b[{self._drawn - 1}A" if self._drawn > 1 else ""
            self._put(f"\r{up}\x1b[J")
            self._drawn = 0

    def _write(self, lines: list[str]) -> None:
        if not lines:
            return
        self._erase()
        if self._open:
            is_longer = lines[0].startswith(self._open)
            lines = [lines[0][len(self._open) :], *lines[1:]] if is_longer else ["", *lines]
            self._open = ""
        elif lines[0] in self._versions:  # already printed as its last version
            lines = lines[1:]
        self._versions, self._has_update, self._update_at = [], False, 0.0
        super()._write(lines)

    def _put(self, text: str) -> None:
        if text:
            sys.stdout.buffer.write(encode(text))
            sys.stdout.buffer.flush()
