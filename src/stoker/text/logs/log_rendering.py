"""Render a job's log as lines, like a simple terminal.

- A carriage return overwrites the line; cursor-up moves to an earlier line (nested progress bars).
- Colors may be kept. All other escape sequences are dropped: the output of a job must not change
  the title of the reader's terminal, send input to it or hide text.
- The lines depend only on the text, not on the pieces in which it arrives.

This is not part of terminal.py because of the import of re.
"""

from __future__ import annotations

import re

from stoker.text.sizes import format_size

# How many lines a progress bar may move up; lines further up are final.
_WINDOW = 60

# Characters kept of a line: its end. A program may write gigabytes without a line end.
MAX_LINE_LENGTH = 1 << 20

# Everything but text and line ends. Tabs are text.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_BACKSPACE_OR_ESCAPE = re.compile("[\x08\x1b]")  # the others have no effect

# `ESC [ parameters final` of usual length; the rest of a longer sequence is shown as text.
_CSI = re.compile("\x1b\\[([0-?]{0,128}[ -/]{0,8})([@-~]?)")
_ESCAPE = re.compile("\x1b[ -/]{0,8}([0-~]?)")

# Strings for titles, clipboard or images. They end with BEL, with another escape sequence (such as
# ST), or with the line: a job that is killed inside one must not hide the rest of its log.
_STRINGS = frozenset("]PX^_")
_STRING_END = re.compile("[\x07\x18\x1a\x1b\n\x9c]")

# Color sequences that stay in effect when a row is overwritten again and again.
_MAX_COLORS = 32

_COLOR = re.compile("\x1b\\[[0-9;:]*m")
_COLOR_ARGUMENT = frozenset("0123456789;:")


class LogView:
    """Turns text into lines. With `live`, a line is returned as soon as it ends.

    For a whole log, use `live=False`: then the last lines stay changeable, so that the first
    cursor-up of a progress bar can reach them.
    """

    def __init__(self, keep_colors: bool, live: bool = False) -> None:
        self._keep_colors = keep_colors
        self._first_reach = 0 if live else _WINDOW
        self._begin()

    def _begin(self) -> None:
        self._rows = [""]
        self._row = 0
        self._text: list[str] = []  # of the current row; each color sequence is an item of its own
        self._length = 0  # upper bound of the length of that text
        self._dropped = 0  # characters removed from the beginning of the current row
        self.is_rewritten = False  # whether the current row was overwritten, like a progress bar
        self._colors = ""  # set at the left edge, before the text that they apply to
        self._is_at_left = True  # the next text replaces the row instead of appending to it
        self._floor = 0  # the first row that can still change
        self._reach = self._first_reach  # how many rows the cursor has moved up so far
        self._pending = ""  # an incomplete sequence at the end of the last piece
        self._in_string = False

    def feed(self, text: str) -> list[str]:
        """Return the lines that are final after this text."""
        if self._pending:
            text = self._pending + text
            self._pending = ""
        position = self._skip_string(text, 0) if self._in_string else 0
        if _CONTROL.search(text, position):
            while found := _BACKSPACE_OR_ESCAPE.search(text, position):
                self._lines(_CONTROL.sub("", text[position : found.start()]))
                position = self._control(text, found.start())
            self._lines(_CONTROL.sub("", text[position:]))
        elif position < len(text):
            self._lines(text[position:] if position else text)
        return self._final()

    def rows(self) -> list[str]:
        """Return the lines that can still change; the last one may be empty."""
        rows = [*self._rows]
        rows[self._row] = self._joined()
        return rows

    @property
    def row_count(self) -> int:
        return len(self._rows)

    @property
    def cursor_row(self) -> int:
        """The index in `rows()` of the line that the next text goes to."""
        return self._row

    def current(self) -> list[str]:
        """Return the lines that can still change, without colors."""
        rows = self.rows()
        if not _COLOR.sub("", rows[-1]):
            rows.pop()
        return [_COLOR.sub("", row) for row in rows]

    def finish(self) -> list[str]:
        """Return the remaining lines at the end of the log."""
        self._leave()
        rows = self._rows
        if not _COLOR.sub("", rows[-1]):
            rows.pop()
        self._begin()
        return rows

    # -- text ---------------------------------------------------------------------------------

    def _lines(self, text: str) -> None:
        """Add text that has no control characters except line ends."""
        first, *rest = text.split("\n")
        self._overwrite(first)
        if len(rest) > 1 and self._row == len(self._rows) - 1:  # fast path: the last row
            self._leave()
            middle = rest[:-1]
            if "\r" in text:
                middle = [_last_written(line) if "\r" in line else line for line in middle]
            self._rows += middle
            self._row += len(middle)
            self._clear()
            self._text, self._is_at_left = middle[-1:], True
            self._length = len(middle[-1])
            rest = rest[-1:]
        for line in rest:
            self._down()
            self._overwrite(line)

    def _overwrite(self, line: str) -> None:
        if "\r" not in line:
            self._put(line)
            return
        first, _, rest = line.partition("\r")
        self._put(first)
        self.is_rewritten = True
        self._is_at_left = True
        self._put(_last_written(rest))
        if line[-1] == "\r":
            self._is_at_left = True

    def _put(self, text: str) -> None:
        if not text:
            return
        if self._is_at_left:
            self._clear_row()
            if self._colors:
                self._text.append(self._colors)
                self._colors = ""
            self._is_at_left = False
        self._text.append(text)
        self._length += len(text)
        if self._length > 2 * MAX_LINE_LENGTH:
            self._drop()

    def _clear_row(self) -> None:
        """Remove the text of the current row; its colors stay in effect."""
        if any("\x1b" in part for part in self._text):
            self._colors = _in_effect("".join(self._text) + self._colors)
        self._clear()

    def _clear(self) -> None:
        self._text.clear()
        self._length = self._dropped = 0

    def _drop(self) -> None:
        """Drop the beginning of a line that is too long."""
        whole = "".join(self._text)
        self._dropped += max(0, len(whole) - MAX_LINE_LENGTH)
        self._text = [whole[-MAX_LINE_LENGTH:]]
        self._length = MAX_LINE_LENGTH

    def _joined(self) -> str:
        if self._length > MAX_LINE_LENGTH:
            self._drop()
        text = "".join(self._text)
        if not self._dropped:
            return text
        return f"... {self._dropped} characters of this line omitted ... {text}"

    def _erase(self, count: int) -> None:
        """Apply backspaces. A color sequence is not a character and is never split."""
        if self._is_at_left:
            return
        index = len(self._text) - 1
        while count and index >= 0:
            part = self._text[index]
            if part[0] != "\x1b":
                self._text[index] = part[:-count]
                count -= min(count, len(part))
                if not self._text[index]:
                    del self._text[index]
            index -= 1

    # -- the cursor ---------------------------------------------------------------------------

    def _leave(self) -> None:
        """Store the current row."""
        if self._colors:
            self._text.append(self._colors)
            self._colors = ""
        self._rows[self._row] = self._joined()

    def _enter(self, row: int) -> None:
        self._leave()
        self._row = row
        self._clear()
        self._text = [self._rows[row]] if self._rows[row] else []
        self._length = len(self._rows[row])
        self._is_at_left = True
        self.is_rewritten = row + 1 < len(self._rows)

    def _down(self) -> None:
        if self._row + 1 == len(self._rows):
            self._rows.append("")
        self._enter(self._row + 1)

    def _up(self, count: int) -> None:
        self._set_floor()
        wanted = self._row - min(count, _WINDOW)
        self._reach = max(self._reach, min(len(self._rows) - 1 - wanted, _WINDOW))
        self._enter(max(wanted, self._floor))

    def _set_floor(self) -> None:
        self._floor = max(self._floor, len(self._rows) - 1 - self._reach)

    def _final(self) -> list[str]:
        self._set_floor()
        if not self._floor:
            return []
        final, self._rows = self._rows[: self._floor], self._rows[self._floor :]
        self._row -= self._floor
        self._floor = 0
        return final

    # -- control characters and sequences -----------------------------------------------------

    def _control(self, text: str, start: int) -> int:
        """Apply the backspaces or the sequence at `start` and return where they end."""
        if text[start] == "\x1b":
            return self._sequence(text, start)
        end = start + 1
        while text[end : end + 1] == "\b":
            end += 1
        self._erase(end - start)
        return end

    def _sequence(self, text: str, start: int) -> int:
        found = _CSI.match(text, start) or _ESCAPE.match(text, start)
        assert found is not None  # a single ESC matches too
        final = found[found.lastindex or 0]
        if not final:
            if found.end() == len(text):  # incomplete: wait for the rest
                self._pending = text[start:]
            return found.end()
        if found.re is _CSI:
            self._move(found[1], final)
        elif final in _STRINGS and found.end() == start + 2:
            self._in_string = True
            return self._skip_string(text, found.end())
        return found.end()

    def _skip_string(self, text: str, start: int) -> int:
        found = _STRING_END.search(text, start)
        self._in_string = found is None
        return len(text) if found is None else found.start()

    def _move(self, argument: str, final: str) -> None:
        """Apply a sequence that changes lines; ignore all others."""
        if final == "m":
            if self._keep_colors and _COLOR_ARGUMENT.issuperset(argument):
                self._color(f"\x1b[{argument}m")
        elif final == "K":
            if argument not in ("", "0"):
                self._is_at_left = True
            if self._is_at_left:
                self._clear_row()
        elif argument and not argument.isdigit():
            return
        elif final in "AF":
            self._up(max(1, int(argument or 1)))
        elif final in "BE":
            self._enter(min(self._row + max(1, int(argument or 1)), len(self._rows) - 1))
        elif final == "G" and int(argument or 1) <= 1:
            self._is_at_left = self.is_rewritten = True

    def _color(self, sequence: str) -> None:
        if self._is_at_left:
            self._colors += sequence
        else:
            self._text.append(sequence)


def _in_effect(text: str) -> str:
    """Return the color sequences of a text that may still have an effect at its end."""
    found: dict[str, None] = {}
    for sequence in _COLOR.findall(text):
        if sequence in ("\x1b[m", "\x1b[0m"):
            found.clear()
        found.pop(sequence, None)  # the last of equal sequences has the effect of all
        found[sequence] = None
    return "".join([*found][-_MAX_COLORS:])


class RawView:
    """The same interface as LogView for the lines as written; only the last one can change.

    Control characters become visible symbols, so the text has no escape sequences.
    """

    cursor_row = 0
    row_count = 1

    def __init__(self) -> None:
        self._row = ""

    def feed(self, text: str) -> list[str]:
        *final, self._row = (self._row + text.translate(_SYMBOLS)).split("\n")
        self._row = self._row[-MAX_LINE_LENGTH:]
        return final

    def rows(self) -> list[str]:
        return [self._row]


# U+2400 to U+2421 are pictures of the control characters. Tabs and line ends stay.
_SYMBOLS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | {0x7F: 0x2421}


def dropped_note(size: int) -> str:
    """The line that stands for a part of a log that was removed to limit its size."""
    return f"... {format_size(size)} dropped ..."


def _last_written(line: str) -> str:
    """Return the text that a line shows after its carriage returns."""
    end = len(line)
    while end:
        start = line.rfind("\r", 0, end)
        if start + 1 < end:
            return line[start + 1 : end]
        end = start
    return ""
