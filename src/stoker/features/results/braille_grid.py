"""A grid of characters for text and for dots that are finer than a character.

A braille character has 2 by 4 dots. On terminals without Unicode, a dot is one ASCII character.
"""

from __future__ import annotations

from unicodedata import combining, east_asian_width

from stoker.text.terminal import printable

# The bit of each dot in a braille character, by row and column.
_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


class Grid:
    """Characters with colors; (0, 0) is top left. Anything outside the grid is not drawn."""

    def __init__(self, width: int, height: int, *, ascii: bool = False) -> None:
        self.width = width
        self.height = height
        self.ascii = ascii
        self._cells = [[" "] * width for _ in range(height)]
        self._colors = [[""] * width for _ in range(height)]

    def put(self, column: int, row: int, text: str, color: str = "") -> None:
        """Write a line of untrusted text. Wide characters take two cells."""
        for char in self.clean(text):
            cells = char_width(char)
            if not cells:
                continue
            if 0 <= row < self.height and column >= 0 and column + cells <= self.width:
                self._cells[row][column] = char
                self._colors[row][column] = color
                if cells == 2:
                    self._cells[row][column + 1] = ""
                    self._colors[row][column + 1] = color
            column += cells

    def clean(self, text: str) -> str:
        text = printable(text)
        return text.encode("ascii", "replace").decode() if self.ascii else text

    def measure(self, text: str) -> int:
        return sum(map(char_width, self.clean(text)))

    def fit(self, text: str, width: int) -> str:
        """Truncate the text to `width` cells."""
        text = self.clean(text)
        if sum(map(char_width, text)) <= width:
            return text
        kept = ""
        for char in text:
            if self.measure(kept + char) > width - 1:
                break
            kept += char
        return kept + ("~" if self.ascii else "…") if width > 0 else ""

    def lines(self, color: bool) -> list[str]:
        lines = []
        for cells, colors in zip(self._cells, self._colors, strict=True):
            end = max((i + 1 for i, char in enumerate(cells) if char.strip()), default=0)
            parts = []
            current = ""
            for char, new in zip(cells[:end], colors[:end], strict=True):
                if color and new != current and char != " ":
                    parts.append(("\x1b[0m" if current else "") + (f"\x1b[{new}m" if new else ""))
                    current = new
                parts.append(char)
            lines.append("".join(parts) + ("\x1b[0m" if current else ""))
        return lines


class Dots:
    """Dots on a rectangle of a grid. Coordinates run from 0 to 1, y upwards."""

    def __init__(self, grid: Grid, left: int, top: int, width: int, height: int) -> None:
        self._grid = grid
        self._left, self._top = left, top
        self._across, self._down = (1, 1) if grid.ascii else (2, 4)
        self.width = width * self._across
        self.height = height * self._down
        self._bits: dict[tuple[int, int], int] = {}

    def dot(self, x: float, y: float, mark: str, color: str, *, fat: bool = False) -> None:
        """Draw a dot; a fat one is four dots, because a single one is hard to see."""
        column, row = self._at(x, y)
        self._set(column, row, mark, color)
        if fat and not self._grid.ascii:
            neighbor = column + 1 if column + 1 < self.width else column - 1
            below = row + 1 if row + 1 < self.height else row - 1
            for spot in ((neighbor, row), (column, below), (neighbor, below)):
                self._set(*spot, mark, color)

    def line(
        self, start: tuple[float, float], end: tuple[float, float], mark: str, color: str
    ) -> None:
        """Draw a line with Bresenham's algorithm."""
        column, row = self._at(*start)
        last_column, last_row = self._at(*end)
        across, down = abs(last_column - column), -abs(last_row - row)
        right = 1 if column < last_column else -1
        below = 1 if row < last_row else -1
        error = across + down
        while True:
            self._set(column, row, mark, color)
            if (column, row) == (last_column, last_row):
                return
            twice = 2 * error
            if twice >= down:
                error += down
                column += right
            if twice <= across:
                error += across
                row += below

    def put(self, x: float, y: float, char: str, color: str) -> None:
        """Write one character at a coordinate."""
        column, row = self.cell(x, y)
        self._bits[column, row] = 0
        self._grid.put(column, row, char, color)

    def cell(self, x: float, y: float) -> tuple[int, int]:
        column, row = self._at(x, y)
        return self._left + column // self._across, self._top + row // self._down

    def _at(self, x: float, y: float) -> tuple[int, int]:
        column = round(max(0.0, min(1.0, x)) * (self.width - 1))
        return column, round((1 - max(0.0, min(1.0, y))) * (self.height - 1))

    def _set(self, column: int, row: int, mark: str, color: str) -> None:
        cell = self._left + column // self._across, self._top + row // self._down
        if self._grid.ascii:
            self._grid.put(*cell, mark, color)
            return
        bits = self._bits.get(cell, 0) | _BITS[row % 4][column % 2]
        self._bits[cell] = bits
        self._grid.put(*cell, chr(0x2800 + bits), color)


def char_width(char: str) -> int:
    """The width of a character in terminal cells: 0, 1 or 2."""
    if combining(char):
        return 0
    return 2 if east_asian_width(char) in "WF" else 1
