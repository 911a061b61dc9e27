"""The log of the selected job, as far as it was read: the lines of `client/log_view.py`."""

from __future__ import annotations

from typing import Any

from stoker.client.log_view import Wanted
from stoker.top.spans import Line, log_line, wrap_line

_MAX_LINES = 20_000
_NEAR_LINES = 200


class LogTail:
    """Lines of one log with their offsets in the file; the last ones may still change."""

    def __init__(self, job: int | None = None) -> None:
        self.job = job
        self.error: str | None = None
        self._begin()

    def _begin(self) -> None:
        self.attempt: int | None = None  # None: nothing was read yet; 0: it has not started
        self.is_over = False
        self._start = self._to = 0
        self._starts: list[int] = []
        self.lines: list[Line] = []
        self._offset = 0  # lines below the last visible one; 0 follows the log

    def wanted(self) -> Wanted:
        """What to read next: the end of the log, or what follows the known part."""
        if self.attempt is None:
            return Wanted()
        return Wanted(begin=self._to, start=self._start)

    def earlier(self) -> Wanted | None:
        """The part before the known one; None at the beginning of the log."""
        if not self._starts or not self._starts[0]:
            return None
        return Wanted(end=self._starts[0])

    def take(self, answer: dict[str, Any]) -> bool:
        """Add an answer to `wanted`. Returns whether more can be read at once."""
        if self.attempt is None:
            self.attempt = answer["attempt"]
        elif answer["attempt"] != self.attempt or answer["size"] < self._to:
            self._begin()  # another file: read its end
            return True
        begin = answer["from"]
        kept = len(self._starts)
        while kept and self._starts[kept - 1] >= begin:
            kept -= 1
        added = len(answer["lines"]) - (len(self._starts) - kept)
        self._starts[kept:] = [one["at"] for one in answer["lines"]]
        self.lines[kept:] = [log_line(one["spans"]) for one in answer["lines"]]
        if self._offset:
            self._offset = max(1, self._offset + added)  # the reader looks at an earlier part
        self._start, self._to = answer["start"], answer["to"]
        self.is_over = answer["is_over"]
        extra = len(self.lines) - _MAX_LINES
        if extra > 0 and not self._offset:
            del self.lines[:extra], self._starts[:extra]
        return bool(answer["to"] < answer["size"])

    def take_earlier(self, answer: dict[str, Any]) -> None:
        self._starts[:0] = [one["at"] for one in answer["lines"]]
        self.lines[:0] = [log_line(one["spans"]) for one in answer["lines"]]

    # -- scrolling -----------------------------------------------------------------------------

    @property
    def is_following(self) -> bool:
        return self._offset == 0

    @property
    def below(self) -> int:
        """The number of lines below the last visible one."""
        return self._offset

    def scroll(self, delta: int) -> None:
        """Move by lines, up if negative."""
        self._offset = max(0, min(self._offset - delta, len(self.lines) - 1))

    def to_end(self) -> None:
        self._offset = 0

    def to_start(self) -> None:
        self._offset = max(0, len(self.lines) - 1)

    @property
    def is_near_start(self) -> bool:
        """Whether the part before the known one may soon be visible."""
        return self._offset > 0 and len(self.lines) - self._offset < _NEAR_LINES

    def view(self, columns: int, height: int) -> list[Line]:
        """The rows to draw: long lines are wrapped, and the window is full if there are enough."""
        rows: list[Line] = []
        index = len(self.lines) - self._offset
        while index > 0 and len(rows) < height:
            index -= 1
            rows[:0] = wrap_line(self.lines[index], columns)
        rows = rows[-height:]
        while len(rows) < height and self._offset:
            rows += wrap_line(self.lines[-self._offset], columns)
            self._offset -= 1
        return rows[:height]
