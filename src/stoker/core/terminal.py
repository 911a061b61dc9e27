"""Text of jobs on people's terminals: progress bars collapsed, dangerous bytes made harmless."""

from __future__ import annotations

# How many lines a progress bar may climb back; what is further up is final.
_WINDOW = 60


def printable(text: str) -> str:
    """One line of user text with control characters, broken bytes and direction marks escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(char: str) -> str:
    code = ord(char)
    if char == "\n":
        return "\\n"
    if char == "\t":
        return "\\t"
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


class LogView:
    """A log as it would stand on a terminal that only knows lines.

    Carriage returns overwrite the line, cursor-up moves back to an earlier one (nested progress
    bars), colours may stay, and every other escape sequence is dropped: job output must not be able
    to type into, retitle or fool the terminal of whoever reads it.
    """

    def __init__(self, keep_colours: bool) -> None:
        self._keep_colours = keep_colours
        self._rows: list[str] = [""]
        self._row = 0
        self._fresh = True  # the next text replaces the row instead of adding to it
        self._pending = ""

    def feed(self, text: str) -> list[str]:
        """Lines that are final now."""
        text = self._pending + text
        self._pending = ""
        start = 0
        for index, char in enumerate(text):
            if index < start:
                continue
            if (char >= " " and char != "\x7f" and not "\x80" <= char <= "\x9f") or char == "\t":
                continue
            self._put(text[start:index])
            if char == "\x1b":
                end = self._sequence(text, index)
                if end is None:  # cut off in the middle: wait for the rest
                    self._pending = text[index:] if len(text) - index < 256 else ""
                    return self._final()
                start = end
                continue
            start = index + 1
            if char == "\n":
                self._down()
            elif char == "\r":
                self._fresh = True
            elif char == "\b":
                self._rows[self._row] = self._rows[self._row][:-1]
        self._put(text[start:])
        return self._final()

    def finish(self) -> list[str]:
        """What is left at the end of the log."""
        rows = self._rows if self._rows[-1] else self._rows[:-1]
        self._rows, self._row = [""], 0
        return rows

    def _put(self, text: str) -> None:
        if not text:
            return
        if self._fresh:
            self._rows[self._row] = text
            self._fresh = False
        else:
            self._rows[self._row] += text

    def _down(self) -> None:
        self._row += 1
        self._fresh = False
        if self._row == len(self._rows):
            self._rows.append("")
        else:
            self._fresh = True

    def _final(self) -> list[str]:
        done = max(0, min(len(self._rows) - _WINDOW, self._row))
        # Without cursor movement nothing can come back to a finished line.
        done = self._row if not self._climbs else done
        final, self._rows = self._rows[:done], self._rows[done:]
        self._row -= done
        return final

    _climbs = False

    def _sequence(self, text: str, start: int) -> int | None:
        """Where the escape sequence ends; applies the few that matter."""
        if start + 1 >= len(text):
            return None
        kind = text[start + 1]
        if kind == "[":
            end = start + 2
            while end < len(text) and not "@" <= text[end] <= "~":
                end += 1
            if end >= len(text):
                return None
            self._control(text[start : end + 1])
            return end + 1
        if kind in "]PX^_":  # strings up to BEL or ESC backslash
            for end in range(start + 2, len(text)):
                if text[end] == "\x07":
                    return end + 1
                if text[end] == "\x1b" and text[end + 1 : end + 2] == "\\":
                    return end + 2
            return None
        return start + 2

    def _control(self, sequence: str) -> None:
        final, argument = sequence[-1], sequence[2:-1]
        if final == "m":
            if self._keep_colours and all(c in "0123456789;:" for c in argument):
                self._put(sequence)
        elif final == "A" and (argument or "1").isdigit():
            self._climbs = True
            self._row = max(0, self._row - min(int(argument or 1), _WINDOW))
            self._fresh = True
        elif final == "B" and (argument or "1").isdigit():
            for _ in range(min(int(argument or 1), _WINDOW)):
                self._down()
        elif final == "K":
            self._fresh = True
