"""A log as lines of styled text, for the web UI: what it only has to draw.

`LogView` renders the text; this module adds the offset in the file at which each line starts and
turns color sequences into spans. Span text is safe to show: invisible characters are escaped.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

from stoker.text.byte_text import to_text
from stoker.text.logs.log_rendering import LogView, RawView, dropped_note
from stoker.text.terminal import escape

# `text`, and where they are not the default: `classes` (CSS), `color` and `background` (rgb).
Span = dict[str, str]
Style = Mapping[str, str]  # what SGR sequences have set: a class or a color for each property

_SGR = re.compile("\x1b\\[([0-9;:]*)m")
_SET = {1: "bold", 2: "faint", 3: "slant", 4: "under", 7: "inverse"}
_RESET = {
    22: ("bold", "faint"),
    23: ("slant",),
    24: ("under",),
    27: ("inverse",),
    39: ("color",),
    49: ("background",),
}
_COLOR_KEYS = (("color", "f"), ("background", "g"))
# Characters that can make a text look like another one: control and format characters (such as
# direction marks), unusual line ends, and bytes that were not UTF-8.
_INVISIBLE = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))


class LogLines:
    """The lines of a log from the byte `start` on. They depend on the bytes only, not on how they
    are divided into calls of `feed`."""

    def __init__(self, start: int, *, is_raw: bool = False) -> None:
        self.is_raw = is_raw
        self.start = start
        self.end = start
        self._view: LogView | RawView = RawView() if is_raw else LogView(True)
        self._final: list[str] = []  # lines since the last `take` that cannot change any more
        self._starts = [start]  # where the final lines and then the rows of the view start
        self._taken: list[str] = []  # the rows of the view that the last `take` returned
        self._style: Style = {}  # at the start of the first of `_final` and the rows

    def feed(self, data: bytes) -> None:
        """Add bytes, which must end with a whole character."""
        position = 0
        while position < len(data):
            end = data.find(b"\n", position) + 1 or len(data)
            self._add(to_text(data[position:end]), end - position)
            position = end

    def skip(self, size: int) -> None:
        """Add a note in place of bytes that were removed from the log."""
        self._add("\n" * (self._view.row_count - 1 - self._view.cursor_row), 0)
        if self._view.rows()[-1]:
            self._add("\n", 0)
        self._add(dropped_note(size) + "\n", size)

    def _add(self, text: str, size: int) -> None:
        """Add a piece that begins at most one new line, at its end."""
        self.end += size
        self._final += self._view.feed(text)
        if len(self._starts) < len(self._final) + self._view.row_count:
            self._starts.append(self.end)

    @property
    def cursor(self) -> int:
        """Where the line starts that the next text goes to."""
        return self._starts[len(self._final) + self._view.cursor_row]

    @property
    def weight(self) -> int:
        """The number of characters that are kept."""
        return sum(map(len, self._view.rows()))

    def take(self) -> tuple[int, list[dict[str, object]]]:
        """Return the lines since the first one that changed after the last call, and its start.

        They replace all earlier lines that begin at or after that offset.
        """
        rows = self._view.rows()
        lines = self._final + rows
        known = zip(lines, self._taken, strict=False)
        same = next((i for i, (new, old) in enumerate(known) if new != old), len(self._taken))
        first = self._starts[same] if same < len(lines) else self.end
        found: list[dict[str, object]] = []
        style = self._style
        for index, line in enumerate(lines):
            if index == len(self._final):
                self._style = style
            spans, style = styled(line, style)
            if index >= same:
                found.append({"at": self._starts[index], "spans": spans})
        if found and not found[-1]["spans"]:  # the last line has not begun
            found.pop()
            rows.pop()
        self._starts = self._starts[len(self._final) :]
        self._final, self._taken = [], rows
        return first, found


def styled(line: str, style: Style) -> tuple[list[Span], Style]:
    """Split a line at its color sequences. Returns the spans and the style at the end, with which
    the next line begins.

    >>> styled("a\\x1b[1;31mb\\x1b[m", {})
    ([{'text': 'a'}, {'text': 'b', 'classes': 'bold f1'}], {})
    """
    if "\x1b" not in line:
        return ([_span(line, style)] if line else []), style
    spans = []
    for index, part in enumerate(_SGR.split(line)):
        if index % 2:
            style = _changed(style, part)
        elif part:
            spans.append(_span(part, style))
    return spans, style


def _span(text: str, style: Style) -> Span:
    span = {"text": visible(text)}
    if style:
        classes = [name for name in _SET.values() if name in style]
        for key, _ in _COLOR_KEYS:
            color = style.get(key, "")
            if color.startswith("rgb"):
                span[key] = color
            elif color:
                classes.append(color)
        if classes:
            span["classes"] = " ".join(classes)
    return span


def _changed(style: Style, argument: str) -> Style:
    """Return the style after a color sequence; unknown codes are ignored."""
    new = dict(style)
    codes = [int(code or 0) for code in re.split("[;:]", argument)]
    while codes:
        code = codes.pop(0)
        if code == 0:
            new.clear()
        elif code in _SET:
            new[_SET[code]] = ""
        elif code in _RESET:
            for name in _RESET[code]:
                new.pop(name, None)
        elif code in (38, 48):
            key, letter = _COLOR_KEYS[code == 48]
            new[key] = _extended(codes, letter)
        else:
            for base, (key, letter) in zip((30, 40), _COLOR_KEYS, strict=True):
                if base <= code < base + 8:
                    new[key] = f"{letter}{code - base}"
                elif base + 60 <= code < base + 68:
                    new[key] = f"{letter}{code - base - 52}"
    return new


def _extended(codes: list[int], letter: str) -> str:
    """Remove a color of `38;5;N` or `38;2;R;G;B` from the codes and return it; "" if unknown."""
    kind, *values = (min(code, 255) for code in codes[:4]) if codes else (0,)
    del codes[: {5: 2, 2: 4}.get(kind, 1)]
    if kind == 2:
        return "rgb({} {} {})".format(*[*values, 0, 0, 0][:3])
    if kind != 5:
        return ""
    number = values[0] if values else 0
    if number < 16:
        return f"{letter}{number}"
    if number >= 232:
        return "rgb({0} {0} {0})".format(8 + 10 * (number - 232))
    cube = (number - 16) // 36, (number - 16) // 6 % 6, (number - 16) % 6
    return "rgb({} {} {})".format(*(55 + 40 * level if level else 0 for level in cube))


class _Shown(dict[int, str | int]):
    """How each character is shown, for `str.translate`; filled on demand."""

    def __missing__(self, code: int) -> str | int:
        char = chr(code)
        is_shown = char == "\t" or unicodedata.category(char) not in _INVISIBLE
        self[code] = code if is_shown else escape(char)
        return self[code]


_SHOWN = _Shown()


def visible(text: str) -> str:
    """Return a line of a log with invisible characters as escapes. Tabs stay."""
    return text if text.isprintable() else text.translate(_SHOWN)
