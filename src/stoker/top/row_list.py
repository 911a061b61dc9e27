"""A list with a cursor, of which only a window is drawn: its length costs nothing."""

from __future__ import annotations

from collections.abc import Sequence

Row = int | str  # the id of a job, the name of a sweep, or a heading


class Heading(str):
    """A row between others, which cannot be selected."""


def is_heading(row: Row) -> bool:
    return isinstance(row, Heading)


class RowList:
    """Rows with a cursor that stays on its row when the rows change."""

    def __init__(self) -> None:
        self.rows: Sequence[Row] = ()
        self.index = 0
        self.top = 0
        self._is_chosen = False  # the user has moved the cursor

    @property
    def selected(self) -> Row | None:
        if 0 <= self.index < len(self.rows) and not is_heading(self.rows[self.index]):
            return self.rows[self.index]
        return None

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Replace the rows. The cursor follows its row; if that is gone, it keeps its place."""
        before = self.selected
        self.rows = rows
        if before is not None and (self._is_chosen or before in self.rows):
            try:
                self.index = rows.index(before)
                return
            except ValueError:
                pass
        self._settle(min(self.index, len(rows) - 1), 1)

    def select(self, row: Row) -> None:
        if row in self.rows:
            self.index = self.rows.index(row)
            self._is_chosen = True

    def restart(self) -> None:
        """Forget the place of the cursor: other rows follow."""
        self.index = self.top = 0
        self._is_chosen = False
        self.rows = ()

    def move(self, delta: int) -> None:
        self._is_chosen = True
        target = max(0, min(self.index + delta, len(self.rows) - 1))
        self._settle(target, 1 if delta > 0 else -1)

    def first(self) -> None:
        self._is_chosen = True
        self.top = 0
        self._settle(0, 1)

    def last(self) -> None:
        self._is_chosen = True
        self._settle(len(self.rows) - 1, -1)

    def window(self, height: int) -> range:
        """The indexes of the rows to draw; scrolls so that the cursor is visible."""
        height = max(1, height)
        if self.index < self.top:
            self.top = self.index
            if self.top and is_heading(self.rows[self.top - 1]):
                self.top -= 1  # the heading of the first row is worth a line
        if self.index >= self.top + height:
            self.top = self.index - height + 1
        self.top = max(0, min(self.top, len(self.rows) - height))
        return range(self.top, min(len(self.rows), self.top + height))

    def _settle(self, index: int, direction: int) -> None:
        """Put the cursor on the row that is not a heading, from `index` on in a direction."""
        for step in (direction, -direction):
            place = index
            while 0 <= place < len(self.rows):
                if not is_heading(self.rows[place]):
                    self.index = place
                    return
                place += step
        self.index = max(0, index)
