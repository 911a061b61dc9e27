"""A table with a cursor, for lists of any length: only the visible rows have contents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Self

from rich.cells import cell_len
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.coordinate import Coordinate
from textual.geometry import Region
from textual.widgets import DataTable

from stoker.features.top.glyphs import Glyphs, Span
from stoker.record import Record

Row = int | str  # the id of a job, or the name of a sweep

_PAGE = 400  # rows in the table: a row costs time even if it is empty and not visible
_MARGIN = 100  # so near to its end, the table gets other rows; more than a terminal has
_LEAST_LAST = 8  # a narrower last column would show nothing
_GAP = 2


class Column(Record):
    """A column as wide as its visible cells, within bounds.

    The last column gets the remaining space; a flexible one shares it if it is short.
    """

    title: str
    least: int = 0
    most: int = 1000
    is_flexible: bool = False
    is_right: bool = False


class RowTable(DataTable[Text], inherit_bindings=False):
    """`rows` may have any length; the table has those from `begin` on, at most `_PAGE`."""

    _is_filling = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "cursor_up", show=False),
        Binding("down,j", "cursor_down", show=False),
        Binding("pageup", "page_up", show=False),
        Binding("pagedown", "page_down", show=False),
        Binding("home", "place(0)", show=False),
        Binding("end", "place(-1)", show=False),
    ]

    def __init__(
        self,
        layout: Sequence[Column],
        cells: Callable[[Row], Sequence[Span]],
        glyphs: Glyphs,
        id: str,
    ) -> None:
        super().__init__(cursor_type="row", cursor_foreground_priority="css", id=id)
        self.entries: Sequence[Row] = ()
        self._begin = 0
        self._layout = layout
        self._cells = cells
        self._glyphs = glyphs
        self._contents: dict[int, Sequence[Span]] = {}  # what the rows of the table show

    def on_mount(self) -> None:
        for column in self._layout:
            title = self._glyphs.line(column.title, is_right=column.is_right)
            self.add_column(title, key=column.title, width=1)

    @property
    def selected(self) -> Row | None:
        index = self._begin + self.cursor_row
        return self.entries[index] if index < len(self.entries) else None

    @property
    def _window(self) -> range:
        """The rows of the table that can be seen."""
        top = round(self.scroll_y)
        return range(top, min(self.row_count, top + max(0, self.size.height - 1)))

    @property
    def visible_rows(self) -> Sequence[Row]:
        shown = self._window
        return self.entries[self._begin + shown.start : self._begin + shown.stop]

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Replace the rows. The cursor follows its row; if that is gone, it keeps its place."""
        if rows == self.entries:
            return
        before, index = self.selected, self._begin + self.cursor_row
        self.entries = rows
        if before in rows:
            index = rows.index(before)
        self.action_place(min(index, len(rows) - 1))

    def select(self, row: Row | None) -> None:
        if row in self.entries:
            self.action_place(self.entries.index(row))

    def action_place(self, index: int) -> None:
        """Put the cursor on a row; the table gets the rows around it."""
        count = len(self.entries)
        index = max(0, index % count if count else 0)
        begin = min(self._begin, max(0, count - _PAGE))
        if not (begin + _MARGIN <= index < begin + _PAGE - _MARGIN):
            begin = max(0, min(index - _PAGE // 2, count - _PAGE))
        line, moved, self._begin = self.cursor_row - self.scroll_y, begin != self._begin, begin
        blank = [Text("")] * len(self._layout)
        while self.row_count < min(count, _PAGE):
            self.add_row(*blank, key=str(self.row_count))
        while self.row_count > count:
            self._contents.pop(self.row_count - 1, None)
            self.remove_row(str(self.row_count - 1))
        if moved:
            self.scroll_to(y=index - begin - line, animate=False, force=True, immediate=True)
        self.cursor_coordinate = Coordinate(index - begin, 0)  # this scrolls
        self.fill()

    def on_data_table_row_highlighted(self) -> None:
        self.action_place(self._begin + self.cursor_row)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.fill()

    def on_resize(self) -> None:
        self.fill()

    def fill(self) -> None:
        """Give the visible rows their contents, as far as they differ from what they show."""
        wanted = {
            place: self._cells(row)
            for place, row in zip(self._window, self.visible_rows, strict=False)
        }
        widths = self._widths(list(wanted.values()))
        is_new = widths != [column.width for column in self.ordered_columns]
        if is_new:
            self._contents.clear()
            for column, width in zip(self.ordered_columns, widths, strict=True):
                column.width = width
        self._is_filling = not is_new
        for place, cells in wanted.items():
            if self._contents.get(place) != cells:
                self._contents[place] = cells
                for number, (text, style) in enumerate(cells):
                    is_right = self._layout[number].is_right
                    cell = self._glyphs.line(text, style, is_right=is_right)
                    self.update_cell_at(Coordinate(place, number), cell)
                self.refresh_row(place)
        self._is_filling = False

    def refresh(self, *regions: Region, **options: bool) -> Self:
        """While rows are filled, draw only those: a changed cell would draw the whole table."""
        return self if self._is_filling and not regions else super().refresh(*regions, **options)

    def _widths(self, rows: Sequence[Sequence[Span]]) -> list[int]:
        widths = []
        for number, column in enumerate(self._layout):
            longest = max((cell_len(cells[number][0]) for cells in rows), default=0)
            longest = max(longest, len(column.title))
            widths.append(max(column.least, min(longest, column.most)))
        room = self.size.width - _GAP * len(widths) - sum(widths[:-1])
        for number, column in enumerate(self._layout):
            if column.is_flexible:
                room += widths[number]
                least = max(room // 2, room - widths[-1])
                widths[number] = max(0, min(widths[number], least))
                room -= widths[number]
        widths[-1] = room if room >= min(widths[-1], _LEAST_LAST) else 0
        return widths
