"""Job files: one job a line.

Blank lines and lines that begin with `#` are skipped, a backslash at the end continues the line,
and `#stoker FLAGS` gives flags: behind a command for that job, on a line of its own for all jobs
that follow. Inside quotes it is text, as `#` is for a shell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stoker.core.record import Record
from stoker.errors import UsageError

DIRECTIVE = "#stoker"
_GAP = ("", " ", "\t")  # what stands beside a word


class JobLine(Record):
    number: int
    text: str
    flags: str  # the text behind `#stoker`, joined with that of standing directives


class Parser:
    """Takes lines one by one, so that a producer that writes a line a day gets its job that day."""

    def __init__(self) -> None:
        self._standing = ""
        self._joined = ""
        self._first = 0
        self._number = 0

    def feed(self, raw: str) -> JobLine | None:
        """The job that this line completes, if it does."""
        self._number += 1
        line = raw.rstrip("\r\n")
        if "\0" in line:
            raise UsageError(f"line {self._number} holds a NUL byte", "is this a text file?")
        if self._joined:
            line, self._joined = self._joined + line, ""
        else:
            self._first = self._number
            if self._number == 1:
                line = line.removeprefix("\ufeff")  # how some editors begin a UTF-8 file
        head = line.lstrip()
        if not head:
            return None
        if head[0] == "#":  # a backslash does not continue a comment
            if head.startswith(DIRECTIVE) and head[len(DIRECTIVE) :][:1] in _GAP:
                self._standing = f"{self._standing} {head[len(DIRECTIVE) :].strip()}".strip()
            return None
        if line[-1] == "\\" and (len(line) - len(line.rstrip("\\"))) % 2:
            self._joined = line[:-1]
            return None
        return _line(self._first, line, self._standing)

    def finish(self) -> JobLine | None:
        """The input ended; a continued last line is a job as it stands."""
        if not self._joined.strip():
            return None
        text, self._joined = self._joined, ""
        return _line(self._first, text, self._standing)


def parse(lines: Iterable[str]) -> Iterator[JobLine]:
    """
    >>> [line.text for line in parse(["# two jobs", "echo a \\\\", "b", "echo c #stoker --gpus 2"])]
    ['echo a b', 'echo c']
    """
    parser = Parser()
    for raw in lines:
        line = parser.feed(raw)
        if line is not None:
            yield line
    last = parser.finish()
    if last is not None:
        yield last


def _line(number: int, text: str, standing: str) -> JobLine:
    if DIRECTIVE not in text:
        return JobLine(number, _trim(text), standing)
    command, *flags = _split(text)
    return JobLine(number, _trim(command), " ".join(filter(None, (standing, *flags))))


def _split(text: str) -> list[str]:
    """The command, then the flags of each directive; in quotes there are none.

    >>> _split("echo ' #stoker a' #stoker -G 2 #stoker -n 'b #stoker c'")
    ["echo ' #stoker a' ", '-G 2', "-n 'b #stoker c'"]
    """
    parts: list[str] = []
    start = place = 0
    before, quote, is_comment = " ", "", False
    while place < len(text):
        char, end = text[place], place + len(DIRECTIVE)
        if quote:
            if char == quote:
                quote = ""
            elif char == "\\" and quote == '"':
                place += 1
        elif before in " \t" and text.startswith(DIRECTIVE, place) and text[end : end + 1] in _GAP:
            parts.append(text[start:place])
            start, place, is_comment = end, end - 1, False
            char = " "
        elif is_comment:
            pass  # the shell reads no quotes there
        elif char == "#" and before in " \t;&|()<>" and not parts:
            is_comment = True
        elif char == "\\":
            place += 1
        elif char in "\"'":
            quote = char
        before = char
        place += 1
    return [*parts[:1], *map(str.strip, parts[1:]), text[start:].strip() if parts else text]


def _trim(text: str) -> str:
    trimmed = text.strip()
    return text.lstrip() if trimmed.endswith("\\") else trimmed  # that space is a character
