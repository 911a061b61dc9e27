"""Read job lines from a file or stdin in batches, as soon as they arrive."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator

from stoker.errors import UsageError
from stoker.text.byte_text import to_text
from stoker.text.commands.job_file import DIRECTIVE, JobLine, Parser, parse

_READ = 1 << 20


def open_lines(path: str) -> int:
    """Open a job file and return its descriptor; `-` is stdin. Raises UsageError."""
    if path == "-":
        return 0
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        os.read(descriptor, 0)
    except OSError as error:
        raise UsageError(f"cannot read `{path}`: {error.strerror}") from None
    return descriptor


class LineReader:
    """Parses job lines from a descriptor that may be a pipe."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._parser = Parser()
        self._rest = b""
        self.at_end = False

    def read(self) -> list[JobLine]:
        """Block until there is input, and return the complete lines in it."""
        data = os.read(self.descriptor, _READ)
        if not data:
            self.at_end = True
            tail, self._rest = self._rest, b""
            lines = [self._parser.feed(to_text(tail))] if tail else []
            return [line for line in (*lines, self._parser.finish()) if line is not None]
        whole, newline, rest = data.rpartition(b"\n")
        if not newline:
            self._rest += rest
            return []
        text, self._rest = to_text(self._rest + whole), rest
        feed = self._parser.feed
        return [line for raw in text.split("\n") if (line := feed(raw)) is not None]


def read_batches(path: str, size: int) -> Iterator[list[JobLine]]:
    """Yield batches of at most `size` lines; a smaller one whenever the producer pauses."""
    reader = LineReader(open_lines(path))
    batch: list[JobLine] = []
    while not reader.at_end:
        batch += reader.read()
        while len(batch) >= size:
            yield batch[:size]
            batch = batch[size:]
        if batch and not reader.at_end and not _has_more(reader.descriptor):
            yield batch
            batch = []
    if batch:
        yield batch


def _has_more(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


def check_file(path: str, make: Callable[[JobLine], object]) -> None:
    """Check all lines of a file before any job starts; `make` raises for a bad line.

    A FIFO is not checked, because it can be read only once.
    """
    if _needs_check(path):
        count_jobs(path, make)


def count_jobs(path: str, make: Callable[[JobLine], object]) -> int | None:
    """Check all lines of a file and return the number of jobs; None for a FIFO."""
    descriptor = open_lines(path)
    if not os.path.isfile(path):
        os.close(descriptor)
        return None
    count = 0
    with open(descriptor, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        for line in parse(file):
            count += 1
            if line.flags:
                make(line)
    return count


def _needs_check(path: str) -> bool:
    """Whether a regular file has anything that could be wrong: flags, or NUL bytes."""
    descriptor = open_lines(path)
    try:
        if not os.path.isfile(path):
            return False
        before = b""
        while data := os.read(descriptor, _READ):
            if b"\0" in data or DIRECTIVE.encode() in before[-len(DIRECTIVE) :] + data:
                return True
            before = data
        return False
    finally:
        os.close(descriptor)
