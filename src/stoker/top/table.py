"""Aligned columns for any width: the flexible columns take what the others leave."""

from __future__ import annotations

from collections.abc import Sequence

from stoker.core.record import Record
from stoker.top.spans import Glyphs, Line, Span, fit, width

_GAP = 2
_LEAST_FLEXIBLE = 8  # a narrower last column would show nothing


class Column(Record):
    """A column as wide as its cells, within bounds; with `share`, a part of the remaining space."""

    title: str
    least: int = 0
    most: int = 1000
    share: int = 0
    is_right: bool = False


Cells = Sequence[Span]


def column_widths(columns: Sequence[Column], rows: Sequence[Cells], room: int) -> list[int]:
    """The widths of the columns. The last columns get nothing if the room is too small."""
    widths = []
    for i, column in enumerate(columns):
        longest = max((width(row[i][0]) for row in rows), default=0)
        longest = max(longest, width(column.title))
        widths.append(max(column.least, min(longest, column.most)))
    fixed = sum(w for w, c in zip(widths, columns, strict=True) if not c.share)
    room -= fixed + _GAP * (len(columns) - 1)
    flexible = [i for i, column in enumerate(columns) if column.share]
    needed = list(widths)
    shares = sum(columns[i].share for i in flexible)
    for i in flexible[:-1]:  # a column of short cells leaves the rest to the next ones
        widths[i] = max(0, min(needed[i], room * columns[i].share // shares))
        room -= widths[i]
        shares -= columns[i].share
    for i in flexible[-1:]:
        widths[i] = room if room >= min(needed[i], _LEAST_FLEXIBLE) else 0
        spare = widths[i] - needed[i]
        for other in flexible[:-1]:  # and the last one what it does not need
            more = max(0, min(spare, needed[other] - widths[other]))
            widths[other], widths[i], spare = widths[other] + more, widths[i] - more, spare - more
    return widths


def header(columns: Sequence[Column], widths: Sequence[int], glyphs: Glyphs) -> Line:
    cells = [(column.title, "bold") for column in columns]
    return table_line(cells, columns, widths, glyphs)


def table_line(
    cells: Cells, columns: Sequence[Column], widths: Sequence[int], glyphs: Glyphs
) -> Line:
    spans: list[Span] = []
    for i, (text, style) in enumerate(cells):
        if widths[i] <= 0:
            continue
        if spans:
            spans.append((" " * _GAP, ""))
        spans.append((fit(text, widths[i], glyphs, is_right=columns[i].is_right), style))
    return tuple(spans)


def bar(part: float, columns: int, glyphs: Glyphs) -> str:
    """A bar of which a part from 0 to 1 is filled; little is more than nothing."""
    full = round(max(0.0, min(1.0, part)) * columns) or int(part >= 0.02)
    return glyphs.full * full + glyphs.empty * (columns - full)
