"""Lines of styled text: what the dashboard is drawn with.

All text of jobs goes through `clean`, and a line is never parsed as markup: a job name such as
`[red]x` or an escape sequence is shown as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from stoker.core.formats import terminal
from stoker.core.formats.log_lines import Span as LogSpan
from stoker.core.formats.terminal import printable
from stoker.core.record import Record

Span = tuple[str, str]  # text and style, in the words of rich: "bold green"
Line = tuple[Span, ...]

# Colors are those of the terminal: 16 of them exist everywhere, on light and dark backgrounds.
_NAMES = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_ATTRIBUTES = {
    "bold": "bold",
    "faint": "dim",
    "slant": "italic",
    "under": "underline",
    "inverse": "reverse",
}
STATE_STYLES = {
    "running": "green", "starting": "green", "stopping": "yellow", "submitted": "cyan",
    "queued": "cyan", "held": "magenta", "done": "dim", "failed": "red", "lost": "red",
    "cancelled": "yellow", "active": "green", "paused": "yellow", "finished": "dim",
    "stopped": "yellow", "busy": "green", "taken": "yellow",
}  # fmt: skip


class Glyphs(Record):
    """The characters beside text; `ASCII` for terminals without Unicode."""

    ellipsis: str = "…"
    full: str = "█"
    empty: str = "░"
    rule: str = "─"
    upright: str = "│"
    marker: str = "▸"
    dot: str = "·"
    arrows: str = "↑↓"
    is_ascii: bool = False


UNICODE = Glyphs()
ASCII = Glyphs("~", "#", ".", "-", "|", ">", "-", "up/down", True)


def width(text: str) -> int:
    """The columns of a printable text."""
    return len(text) if text.isascii() else _width(text)


_width = lru_cache(8192)(terminal.width)  # the same rules and bars are measured again and again


def clean(text: object) -> str:
    """A text of a user on one line, with control characters as escapes."""
    return printable(str(text))


def fit(text: str, columns: int, glyphs: Glyphs, *, is_right: bool = False) -> str:
    """The text in exactly this many columns: with an ellipsis if it is longer.

    >>> fit("train", 7, UNICODE), fit("train", 4, UNICODE), fit("7", 3, UNICODE, is_right=True)
    ('train  ', 'tra…', '  7')
    """
    text = cut(text, columns, glyphs)
    spaces = " " * (columns - width(text))
    return spaces + text if is_right else text + spaces


def cut(text: str, columns: int, glyphs: Glyphs) -> str:
    if width(text) <= columns:
        return text
    if columns <= 0:
        return ""
    kept = text[: columns - 1]
    while width(kept) > columns - 1:
        kept = kept[:-1]
    return kept + glyphs.ellipsis


def line_width(line: Line) -> int:
    return sum(width(text) for text, _ in line)


def fit_line(line: Line, columns: int, glyphs: Glyphs, style: str = "") -> Line:
    """The line in exactly this many columns; `style` is that of the space after it."""
    used = line_width(line)
    if used <= columns:
        return (*line, (" " * (columns - used), style)) if used < columns else line
    kept: list[Span] = []
    room = columns
    for text, own in line:
        if width(text) >= room:
            # Something follows, or the text itself is too long.
            kept.append((cut(text + " ", room, glyphs), own))
            break
        kept.append((text, own))
        room -= width(text)
    return fit_line(tuple(kept), columns, glyphs, style)


def with_style(line: Line, style: str) -> Line:
    """The line with a style added to all of it."""
    return tuple((text, f"{own} {style}".strip()) for text, own in line)


def plain(lines: Iterable[Line]) -> str:
    """The lines as text without styles, as a terminal shows them."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


def wrap(text: str, columns: int) -> list[str]:
    """The text in rows of at most this many columns, divided at spaces where that is possible.

    >>> wrap("one two three", 8), wrap("abcdefghij", 4)
    (['one two', 'three'], ['abcd', 'efgh', 'ij'])
    """
    rows: list[str] = []
    while text:
        end = _fitting(text, columns)
        if end < len(text):
            space = text.rfind(" ", 1, end + 1)
            end = space if space > 0 else end
        rows.append(text[:end].rstrip())
        text = text[end:].lstrip()
    return rows or [""]


def wrap_line(line: Line, columns: int) -> list[Line]:
    """The line in rows of at most this many columns, divided anywhere."""
    rows: list[Line] = []
    row: list[Span] = []
    room = columns
    for text, style in line:
        while text:
            end = _fitting(text, room)
            if end:
                row.append((text[:end], style))
                room -= width(text[:end])
                text = text[end:]
            if text:
                if not row:  # a wide character in a single column
                    return [*rows, ()]
                rows.append(tuple(row))
                row, room = [], columns
    return [*rows, tuple(row)]


def _fitting(text: str, columns: int) -> int:
    """How many characters of the text fit."""
    end = min(len(text), columns)
    while end and width(text[:end]) > columns:
        end -= 1
    return end


def log_line(spans: Iterable[LogSpan]) -> Line:
    """A rendered line of a log (core/formats/log_lines.py); its text is already safe to show."""
    return tuple((one["text"].expandtabs(8), _log_style(one)) for one in spans)


def _log_style(span: LogSpan) -> str:
    words = []
    for name in span.get("classes", "").split():
        if name in _ATTRIBUTES:
            words.append(_ATTRIBUTES[name])
        else:
            words += ["on", _color(int(name[1:]))] if name[0] == "g" else [_color(int(name[1:]))]
    for key, before in (("color", ""), ("background", "on ")):
        if key in span:  # rgb(r g b)
            words.append(f"{before}{span[key].replace(' ', ',')}")
    return " ".join(words)


def _color(number: int) -> str:
    return f"bright_{_NAMES[number - 8]}" if number >= 8 else _NAMES[number]
