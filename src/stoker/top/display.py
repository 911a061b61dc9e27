"""The widget that shows the lines of a frame, and sends only what differs from the last one."""

from __future__ import annotations

from functools import lru_cache

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from stoker.top.spans import Line, plain


class Display(Widget):
    """Lines of the whole terminal."""

    DEFAULT_CSS = "Display { width: 100%; height: 100%; }"

    class Resized(Message):
        """The terminal has another size."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[Line] = []
        self._columns = 0

    @property
    def text(self) -> str:
        """What is shown, without styles."""
        return plain(self._lines)

    def on_resize(self) -> None:
        self.post_message(self.Resized())

    def show(self, lines: list[Line], columns: int) -> None:
        """Show these lines. Every line has `columns` columns."""
        before, self._lines = self._lines, lines
        if columns != self._columns or len(lines) != len(before):
            self._columns = columns
            self.refresh()
            return
        regions = []
        for row, (old, new) in enumerate(zip(before, lines, strict=True)):
            if old is not new and old != new:
                start, end = changed_columns(old, new, columns)
                regions.append(Region(start, row, end - start, 1))
        if regions:
            self.refresh(*regions)

    def render_line(self, y: int) -> Strip:
        line = self._lines[y] if y < len(self._lines) else ()
        segments = [Segment(text, _style(style)) for text, style in line]
        return Strip(segments).adjust_cell_length(self.size.width, Style.null())


def changed_columns(old: Line, new: Line, columns: int) -> tuple[int, int]:
    """The first column that differs, and the one after the last.

    >>> changed_columns((("job 7 12s", ""),), (("job 7 13s", ""),), 9)
    (7, 8)
    """
    first, second = _cells(old), _cells(new)
    if first is None or second is None or len(first) != columns or len(second) != columns:
        return 0, columns
    same = [a == b for a, b in zip(first, second, strict=True)]
    return same.index(False), columns - same[::-1].index(False)


def _cells(line: Line) -> list[tuple[str, str]] | None:
    """A character and style for each column; None if a character may not be one column wide."""
    cells = []
    for text, style in line:
        if not text.isascii() and any(char > "\u2900" for char in text):
            return None
        cells += [(char, style) for char in text]
    return cells


@lru_cache(1024)
def _style(words: str) -> Style:
    return Style.parse(words)
