"""Draw figures as text: with braille dots, or in plain ASCII on terminals without Unicode."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Iterable

from stoker.features.results.braille_grid import Dots, Grid
from stoker.features.results.figure import Axis, Figure, Panel, Point, Series
from stoker.record import Record

_MAX_VALUE = 1e300  # differences of larger numbers overflow
_MARGIN = 0.03


class Tick(Record):
    place: float
    label: str


class Scale:
    """The scale of one axis, chosen to contain `values`."""

    def __init__(self, axis: Axis, values: Iterable[float]) -> None:
        self._axis = axis
        places = [self._transform(value) for value in values if self.has(value)]
        low, high = (min(places), max(places)) if places else (0.0, 1.0)
        if axis.scale == "category":
            low, high = -0.5, max(0.5, len(axis.categories) - 0.5)
        elif high - low <= max(abs(low), abs(high)) * 1e-12 or high - low < _MAX_VALUE**-1:
            room = abs(low) * 0.1 if abs(low) > _MAX_VALUE**-0.5 else 1.0
            low, high = low - room, high + room
        else:
            room = (high - low) * _MARGIN
            low, high = low - room, high + room
        self._low, self._high = low, high

    def has(self, value: float) -> bool:
        """Whether the value can be drawn on this axis."""
        return math.isfinite(value) and (self._axis.scale != "log" or value > 0)

    def place(self, value: float) -> float:
        return (self._transform(value) - self._low) / (self._high - self._low)

    def ticks(self, most: int) -> list[Tick]:
        """About `most` ticks, but at least two if possible."""
        most = max(2, most)
        if self._axis.scale == "category":
            return [self._tick(i, name) for i, name in enumerate(self._axis.categories)]
        if self._axis.scale == "log":
            return self._log_ticks(most)
        return [self._tick(value, label) for value, label in _round(self._low, self._high, most)]

    def _transform(self, value: float) -> float:
        if self._axis.scale == "log":
            return math.log10(value)
        return max(-_MAX_VALUE, min(_MAX_VALUE, value))

    def _tick(self, transformed: float, label: str) -> Tick:
        return Tick((transformed - self._low) / (self._high - self._low), label)

    def _log_ticks(self, most: int) -> list[Tick]:
        first, last = math.ceil(self._low), math.floor(self._high)
        decades = last - first + 1
        if decades >= 2:
            stride = math.ceil(decades / most)
            return [self._tick(power, _power(1, power)) for power in range(first, last + 1, stride)]
        finer = [
            (power + math.log10(factor), _power(factor, power))
            for power in range(first - 1, last + 2)
            for factor in (1, 2, 5)
            if self._low <= power + math.log10(factor) <= self._high
        ]
        if len(finer) >= 2:
            return [self._tick(place, label) for place, label in finer]
        try:
            low, high = 10**self._low, 10**self._high
        except OverflowError:
            return [self._tick(place, label) for place, label in finer]
        return [
            self._tick(math.log10(value), label)
            for value, label in _round(low, high, most)
            if value > 0
        ]


def _round(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """Values and labels at multiples of 1, 2 or 5 times a power of ten."""
    spacing = (high - low) / most
    power = math.floor(math.log10(spacing)) if spacing > 0 else -300
    unit = 10.0**power
    for factor in (10, 5, 2, 1, 0.5):
        step = factor * unit
        first = math.ceil(low / step)
        values = [(first + i) * step for i in range(3 * most + 2)]
        values = [value for value in values if low <= value <= high]
        if len(values) >= 2 and factor * unit / 2 < spacing:  # a single tick shows no scale
            break
    return [(value, _label(value, step)) for value in values]


def _label(value: float, step: float) -> str:
    if value == 0:
        return "0"
    if abs(value) >= 1e6 or step < 1e-5:
        digits = min(12, max(0, math.floor(math.log10(abs(value))) - math.floor(math.log10(step))))
        return _shorter(f"{value:.{digits}e}")
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{value:.{decimals}f}"


def _power(factor: int, power: int) -> str:
    if -3 <= power <= 4:
        return f"{factor * 10.0**power:.6g}"
    return f"{factor}e{power}"


def _shorter(text: str) -> str:
    """Shorten 1.50e+06 to 1.5e6."""
    digits, _, power = text.partition("e")
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    return f"{digits}e{int(power)}"


_COLORS = ("36", "33", "35", "34", "31", "96", "95", "93")
_BEST = "1;32"
_FAINT = "2"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SMALLEST = (24, 6)
_LOCALES = ("LC_ALL", "LC_CTYPE", "LANG")  # the first one that is set counts
_TALL = 18  # lines from which a long note may have several of them
_MOST_FILLS = 3  # bands whose edges are drawn, those of the best groups
_LEAST_ROWS = 5  # per panel: two of dots, three for title, axis and labels


def knows_unicode(encoding: str | None) -> bool:
    """Whether this encoding, for example of stdout, can represent braille.

    Python uses UTF-8 in the locale C, too, which the terminal of a user may not understand.
    """
    locale = next((os.environ[key] for key in _LOCALES if os.environ.get(key)), "")
    if locale in ("C", "POSIX"):
        return False
    return (encoding or "").lower().replace("-", "").replace("_", "") in ("utf8", "utf8sig")


def draw(
    figure: Figure, width: int = 80, height: int = 24, *, color: bool = False, ascii: bool = False
) -> str:
    """Return at most `height` lines of at most `width` cells.

    If space is short, panels have priority over the legend, and the legend over the note.
    """
    width, height = max(_SMALLEST[0], width), max(_SMALLEST[1], height)
    grid = Grid(width, height, ascii=ascii)
    grid.put(0, 0, grid.fit(figure.title, width), "1")
    panels = figure.panels
    across = 1 if len(panels) < 2 else 2 if len(panels) < 5 else 3
    across = min(across, max(1, width // _SMALLEST[0]))
    rows = min(-(-len(panels) // across), (height - 1) // _LEAST_ROWS)
    panels = panels[: rows * across]
    note = figure.note
    if len(panels) < len(figure.panels):
        left_out = f"not enough space for {len(figure.panels) - len(panels)} more"
        note = f"{left_out}; {note}" if note else left_out
    spare = height - 1 - max(1, rows) * _LEAST_ROWS
    legend = _Legend(grid, figure, color, min(2, spare))
    bottom = height - len(legend.lines)
    most_notes = spare - len(legend.lines)
    notes = _wrapped(note, width, min(most_notes, 1 if height < _TALL else 4))
    bottom -= len(notes)
    for number, line in enumerate(notes, height - len(notes)):
        grid.put(0, number, grid.fit(line, width), _FAINT)
    legend.put(bottom)
    if not panels:
        grid.put(2, 2, "no data yet")
    for number, panel in enumerate(panels):
        row, column = divmod(number, across)
        top, end = (1 + (bottom - 1) * at // rows for at in (row, row + 1))
        left, right = (width * at // across for at in (column, column + 1))
        _Frame(grid, panel, left, top, right - left - (column + 1 < across), end - top).draw(legend)
    lines = grid.lines(color)
    while lines and not lines[-1]:
        lines.pop()
    return "\n".join(lines) + "\n"


def _wrapped(note: str, width: int, most: int) -> list[str]:
    """The note in at most `most` lines; the last one has the rest, which may be too long."""
    lines = textwrap.wrap(note, width)
    if most < 1 or len(lines) <= most:
        return lines if most > 0 else []
    return [*lines[: most - 1], " ".join(lines[most - 1 :])]


class _Legend:
    """The legend. Without colors, each curve is marked with a letter at its end."""

    def __init__(self, grid: Grid, figure: Figure, color: bool, most_lines: int) -> None:
        self._grid = grid
        self._most_lines = most_lines
        self._has_colors = color
        self._styles: dict[int, tuple[str, str]] = {}
        self.lines: list[list[tuple[str, str]]] = []
        entries = []
        named = 0
        for panel in figure.panels:
            for series in panel.series:
                mark, ink = self._style(series, named)
                self._styles[id(series)] = mark, ink
                if series.label:
                    named += series.style == "line"
                    if len(figure.panels) == 1:
                        entries.append((f"{self._key(series, mark)} {series.label}", ink))
        self._wrap(entries)

    def of(self, series: Series) -> tuple[str, str]:
        """Return (mark, color)."""
        return self._styles[id(series)]

    def ends_with_letter(self, series: Series) -> bool:
        return series.style == "line" and bool(series.label) and not self._has_colors

    def _style(self, series: Series, named: int) -> tuple[str, str]:
        if series.style == "dots":
            if series.role == "best":
                return "@" if self._grid.ascii else "◆", _BEST
            return "o", _COLORS[0]
        if series.role == "faint":
            return ".", _FAINT
        ink = _BEST if series.role == "best" else _COLORS[named % len(_COLORS)]
        return _LETTERS[named % len(_LETTERS)], ink

    def _key(self, series: Series, mark: str) -> str:
        is_line = series.style == "line" and self._has_colors and not self._grid.ascii
        return "━" if is_line else mark

    def _wrap(self, entries: list[tuple[str, str]]) -> None:
        """Wrap the entries into at most `most_lines` lines; entries that do not fit are counted."""
        if not self._most_lines:
            return
        lines: list[list[tuple[str, str]]] = [[]]
        used = 0
        for number, (text, ink) in enumerate(entries):
            text = self._grid.fit(text, self._grid.width - 10)
            size = self._grid.measure(text) + 2
            is_last = len(lines) == self._most_lines
            room = self._grid.width + 2 - (10 if is_last else 0)
            if used + size > room and lines[-1]:
                if is_last:
                    lines[-1].append((f"+{len(entries) - number} more", _FAINT))
                    break
                lines.append([])
                used = 0
            lines[-1].append((text, ink))
            used += size
        self.lines = [line for line in lines if line]

    def put(self, top: int) -> None:
        for row, line in enumerate(self.lines):
            column = 0
            for text, ink in line:
                self._grid.put(column, top + row, text, ink)
                column += self._grid.measure(text) + 2


class _Frame:
    """Draws one panel on its part of the grid."""

    def __init__(
        self, grid: Grid, panel: Panel, left: int, top: int, width: int, height: int
    ) -> None:
        self._grid = grid
        self._panel = panel
        points = [point for series in panel.series for point in series.points]
        ends = [end for box in panel.boxes for end in (box.low, box.high)]
        fills = panel.fills[:_MOST_FILLS]
        ends += [y for fill in fills for _, y in (*fill.low, *fill.high)]
        self._x = Scale(panel.x, (x for x, _ in points))
        self._y = Scale(panel.y, [*(y for _, y in points), *ends])
        self._left, self._top, self._width = left, top, width
        self._head = 1 if panel.title else 0
        self._foot = 2 if panel.title else 3
        self._rows = max(1, height - self._head - self._foot)
        self._ticks = self._y.ticks(max(2, min(8, self._rows // 3)))
        self._margin = min(max((grid.measure(t.label) for t in self._ticks), default=0), width // 3)

    def draw(self, legend: _Legend) -> None:
        grid, panel = self._grid, self._panel
        if panel.title:
            grid.put(self._left, self._top, grid.fit(panel.title, self._width), "1")
        left = self._left + self._margin + 1
        top = self._top + self._head
        width = self._width - self._margin - 1
        if width < 2:
            return
        dots = Dots(grid, left, top, width, self._rows)
        self._axes(dots, left, top, width)
        self._boxes(dots)
        self._fills(dots)
        order = ("faint", "plain", "best")
        for series in sorted(panel.series, key=lambda one: order.index(one.role)):
            self._series(dots, series, legend)
        self._letters(dots, legend)
        if not any(self._spot(point) for series in panel.series for point in series.points):
            grid.put(left + 2, top + self._rows // 2, grid.fit("no data yet", width - 2))

    def _spot(self, point: tuple[float, float]) -> tuple[float, float] | None:
        """The place of a point; None for one that cannot be drawn."""
        if not (self._x.has(point[0]) and self._y.has(point[1])):
            return None
        return self._x.place(point[0]), self._y.place(point[1])

    def _series(self, dots: Dots, series: Series, legend: _Legend) -> None:
        mark, ink = legend.of(series)
        if series.style == "line":
            self._line(dots, series.points, mark, ink)
            return
        for spot in filter(None, map(self._spot, series.points)):
            if series.role == "best":
                dots.put(*spot, mark, ink)
            else:
                dots.dot(*spot, mark, ink, fat=True)

    def _line(self, dots: Dots, points: Iterable[Point], mark: str, ink: str) -> None:
        before: tuple[float, float] | None = None
        for spot in map(self._spot, points):
            if spot is not None:
                dots.line(before or spot, spot, mark, ink)
            before = spot  # None leaves a gap

    def _letters(self, dots: Dots, legend: _Legend) -> None:
        """Mark the right ends of the curves; if a cell is occupied, use an earlier point."""
        taken: set[tuple[int, int]] = set()
        for series in self._panel.series:
            if not legend.ends_with_letter(series):
                continue
            mark, ink = legend.of(series)
            for spot in filter(None, map(self._spot, reversed(series.points))):
                if dots.cell(*spot) not in taken:
                    taken.add(dots.cell(*spot))
                    dots.put(*spot, mark, ink)
                    break

    def _boxes(self, dots: Dots) -> None:
        """Draw the quartiles as a box and the median as a line across."""
        for box in self._panel.boxes:
            if not all(map(self._y.has, (box.low, box.q1, box.median, box.q3, box.high))):
                continue
            wide = self._x.place(box.at - 0.32), self._x.place(box.at + 0.32)
            low, middle, high = map(self._y.place, (box.q1, box.median, box.q3))
            for side in wide:
                dots.line((side, low), (side, high), "|", _FAINT)
            for level, mark in ((low, "-"), (high, "-"), (middle, "=")):
                dots.line((wide[0], level), (wide[1], level), mark, _FAINT)

    def _fills(self, dots: Dots) -> None:
        """Draw the edges of the bands; of more than a few, they would hide the lines."""
        for fill in self._panel.fills[:_MOST_FILLS]:
            for points in (fill.low, fill.high):
                self._line(dots, points, ".", _FAINT)

    def _axes(self, dots: Dots, left: int, top: int, width: int) -> None:
        grid = self._grid
        upright, corner, flat, side, under = "|+-++" if grid.ascii else "│└─┤┬"
        base = top + self._rows
        for row in range(top, base):
            grid.put(left - 1, row, upright, _FAINT)
        grid.put(left - 1, base, corner + flat * width, _FAINT)
        taken: set[int] = set()
        for tick in self._ticks:
            _, row = dots.cell(0, tick.place)
            if row in taken or not 0 <= tick.place <= 1:
                continue
            taken.add(row)
            label = grid.fit(tick.label, self._margin)
            grid.put(left - 1 - grid.measure(label), row, label)
            grid.put(left - 1, row, side, _FAINT)
        self._x_ticks(dots, base, under)
        if self._foot == 3:
            label = grid.fit(self._panel.x.label, width)
            grid.put(left + (width - grid.measure(label)) // 2, base + 2, label, _FAINT)

    def _x_ticks(self, dots: Dots, base: int, under: str) -> None:
        grid = self._grid
        first, last = self._left, self._left + self._width
        ticks = self._x.ticks(max(2, min(8, self._width // 10)))
        if self._panel.x.scale == "category":
            widest = max(2, (self._width - self._margin) // max(1, len(ticks)) - 1)
        else:
            widest = self._width
        free = first
        for tick in ticks:
            if not 0 <= tick.place <= 1:
                continue
            column, _ = dots.cell(tick.place, 0)
            label = grid.fit(tick.label, widest)
            size = grid.measure(label)
            start = min(max(column - size // 2, first), last - size)
            if start < free:
                continue
            grid.put(column, base, under, _FAINT)
            grid.put(start, base + 1, label)
            free = start + size + 1
