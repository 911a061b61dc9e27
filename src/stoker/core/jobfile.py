"""Job files: one job a line.

Blank lines and lines that begin with `#` are skipped, a backslash at the end continues the line,
and `#stoker FLAGS` gives flags: behind a command for that job, on a line of its own for all jobs
that follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stoker.core.record import Record
from stoker.errors import UsageError

DIRECTIVE = "#stoker"


class Line(Record):
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

    def feed(self, raw: str) -> Line | None:
        """The job that this line completes, if it does."""
        self._number += 1
        line = raw.rstrip("\r\n")
        if "\0" in line:
            raise UsageError(f"line {self._number} holds a NUL byte", "is this a text file?")
        if not self._joined:
            self._first = self._number
            head = line.lstrip()
            if not head:
                return None
            if head[0] == "#":
                if head.startswith(DIRECTIVE) and head[len(DIRECTIVE) :][:1] in ("", " ", "\t"):
                    self._standing = f"{self._standing} {head[len(DIRECTIVE) :]}".strip()
                return None
        if line.endswith("\\") and (len(line) - len(line.rstrip("\\"))) % 2:
            self._joined += line[:-1]
            return None
        text, self._joined = self._joined + line, ""
        return _line(self._first, text, self._standing)

    def finish(self) -> Line | None:
        """The input ended; a continued last line is a job as it stands."""
        if not self._joined.strip():
            return None
        text, self._joined = self._joined, ""
        return _line(self._first, text, self._standing)


def parse(lines: Iterable[str]) -> Iterator[Line]:
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


def _line(number: int, text: str, standing: str) -> Line:
    if DIRECTIVE not in text:
        return Line(number, text.strip(), standing)
    command, _, flags = text.rpartition(DIRECTIVE)
    if flags[:1] not in ("", " ", "\t") or command[-1:] not in ("", " ", "\t"):
        return Line(number, text.strip(), standing)
    return Line(number, command.strip(), f"{standing} {flags}".strip())
