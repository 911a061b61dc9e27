"""Read logs as rendered lines.

A log is identified by job and attempt, never by a path in a request. Offsets are bytes in the file.
A rendering starts at some byte; a later request continues it, so that a progress bar overwrites the
lines that the reader already has.
"""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator

from stoker.client.live import log_search
from stoker.client.live.log_search import seek
from stoker.client.live.log_text import whole_characters
from stoker.client.queue import Queue
from stoker.engine.store import job_queries
from stoker.engine.store.job_queries import JobRow
from stoker.engine.supervisor.logs import log_path
from stoker.engine.supervisor.regular_files import open_for_reading
from stoker.errors import NotFound
from stoker.record import Record
from stoker.states import FINAL
from stoker.text.logs.log_lines import LogLines

MAX_RANGE_BYTES = 1 << 20
MAX_LINES = 20_000  # in one response; short lines take more space in JSON than in the file
_MORE_BYTES = 256 << 10  # after a match
_BLOCK = 1 << 20
_MAX_OVERWRITTEN = 16 << 20  # bytes of one line that a request searches for its start
_MAX_HOLES = 1000
_MAX_KEPT = 64
_OVERWRITING = re.compile(rb"\r(?=[^\r\n])")


class Log(Record):
    path: str | None  # None: the job has not started
    attempt: int
    is_over: bool  # the log is complete


class Wanted(Record):
    """A part of a log: from `begin` on, the last `tail` bytes before `end`, or around `match`."""

    begin: int | None = None
    end: int | None = None
    tail: int = 1 << 16
    match: int | None = None
    start: int | None = None  # where the rendering started that the reader has up to `begin`
    is_raw: bool = False


def find_log(queue: Queue, row: JobRow, attempt: int | None, stream: str) -> Log:
    number = row.attempts if attempt is None else attempt
    if attempt is not None and not 1 <= attempt <= row.attempts:
        raise NotFound(f"job {row.id} has no attempt {attempt}")
    is_over = row.state in FINAL or number < row.attempts
    if not row.attempts:
        return Log(None, 0, is_over)
    path = row.stdout or log_path(row.files_dir or queue.settings.state_dir, row.id, number)
    if stream == "stderr" and row.stderr:
        path = row.stderr
    return Log(path, number, is_over)


def open_log(log: Log) -> int | None:
    """Open the log; None when the file does not exist. Links and special files are refused."""
    if log.path is None:
        return None
    try:
        return open_for_reading(log.path, follow=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NotFound(f"cannot read the log: {error.strerror}") from None


def read_lines(log: Log, wanted: Wanted, renderings: Renderings) -> dict[str, object]:
    """A part of the log as rendered lines; `models.LogAnswer` describes the fields."""
    descriptor = open_log(log)
    if descriptor is None:
        return {
            "attempt": log.attempt,
            "size": 0,
            "start": 0,
            "from": 0,
            "to": 0,
            "lines": [],
            "match": None,
            "is_over": log.is_over,
        }
    try:
        return _read_lines(_File(descriptor, log.is_over), log, wanted, renderings)
    finally:
        os.close(descriptor)


def _read_lines(file: _File, log: Log, wanted: Wanted, renderings: Renderings) -> dict[str, object]:
    if wanted.match is not None:
        match = min(wanted.match, file.size)
        lines = LogLines(file.start_before(match, wanted.tail), is_raw=wanted.is_raw)
        file.feed(lines, match)
        match_line = lines.cursor
        file.feed(lines, match + _MORE_BYTES, MAX_LINES)
        answer = {**_answer(file, log, lines), "match": match_line}
    elif wanted.begin is not None:
        begin = min(wanted.begin, file.size)
        end = begin + MAX_RANGE_BYTES
        if wanted.end is not None:
            end = max(begin, min(wanted.end, end))
        lines = file.rendered(wanted.start, begin, wanted.is_raw, renderings)
        file.feed(lines, end, MAX_LINES)
        answer = _answer(file, log, lines)
    elif wanted.end is not None:
        to = min(wanted.end, file.size)
        end, is_line_start = (to, True) if wanted.is_raw else file.without_overwritten(to)
        start = file.start_before(end, wanted.tail) if is_line_start else end
        lines = LogLines(start, is_raw=wanted.is_raw)
        file.feed(lines, end)
        return {**_answer(file, log, lines), "to": to}  # nothing continues here
    else:
        lines = LogLines(file.start_before(file.size, wanted.tail), is_raw=wanted.is_raw)
        file.feed(lines, file.size)
        answer = _answer(file, log, lines)
    renderings.keep(file.id, lines)
    return answer


def _answer(file: _File, log: Log, lines: LogLines) -> dict[str, object]:
    begin, found = lines.take()
    return {
        "attempt": log.attempt,
        "size": file.size,
        "start": lines.start,
        "from": begin,
        "to": lines.end,
        "lines": found,
        "match": None,
        "is_over": log.is_over,
    }


class _File:
    """An open log. Holes, where the middle of a log above its size limit was removed, are noted."""

    def __init__(self, descriptor: int, is_over: bool) -> None:
        found = os.fstat(descriptor)
        self._descriptor = descriptor
        self._is_over = is_over
        self.size = found.st_size
        self.id = (found.st_dev, found.st_ino)

    def _read(self, start: int, end: int) -> bytes:
        return os.pread(self._descriptor, max(0, end - start), start)

    def feed(self, lines: LogLines, end: int, most_lines: int | None = None) -> None:
        """Render up to `end`, or to the end of the hole that contains it."""
        end = min(end, self.size)
        while lines.end < end:
            position = lines.end
            data_at = seek(self._descriptor, position, os.SEEK_DATA, self.size)
            if data_at > position:
                lines.skip(data_at - position)
                continue
            hole = seek(self._descriptor, position, os.SEEK_HOLE, self.size)
            data = self._read(position, min(end, hole, position + _BLOCK))
            if most_lines is not None and data.count(b"\n") > most_lines:
                data = data[: _after_lines(data, 0, most_lines)]
                end = position + len(data)
            # Nothing completes a character before a hole or at the end of a complete log.
            is_last = position + len(data) == hole and (hole < self.size or self._is_over)
            length = len(data) if is_last else whole_characters(data)
            lines.feed(data[:length])
            if not length:
                return

    def rendered(
        self, start: int | None, end: int, is_raw: bool, renderings: Renderings
    ) -> LogLines:
        """The rendering from `start` to `end`, which the reader has; without `start`, a new one."""
        if start is None:
            return LogLines(end + _into_character(self._read(end, end + 3)), is_raw=is_raw)
        known = renderings.take(self.id, start, end, is_raw)
        if known is not None:
            return known
        if not 0 <= end - start <= MAX_RANGE_BYTES:  # too much to render again
            return LogLines(self.start_before(end, _MORE_BYTES), is_raw=is_raw)
        lines = LogLines(start, is_raw=is_raw)
        self.feed(lines, end)
        lines.take()
        return lines

    def start_before(self, end: int, count: int) -> int:
        """The start of a line at most `count` bytes before `end`.

        In a long line, it is the start of text that overwrites the line, or of a character.
        """
        start = max(0, end - count)
        if start == end:
            return start
        if start and seek(self._descriptor, start, os.SEEK_DATA, self.size) > start:
            return self._hole_start(start)  # the note is about the whole hole
        base = max(0, start - 1)
        data = self._read(base, min(end, seek(self._descriptor, start, os.SEEK_HOLE, self.size)))
        line = data.find(b"\n") + 1 if start else 0
        if start and not 0 < line < len(data):
            overwriting = _OVERWRITING.search(data)
            line = overwriting.end() if overwriting else 1 + _into_character(data[1:])
        return base + _after_lines(data, line, data.count(b"\n", line) - MAX_LINES)

    def without_overwritten(self, end: int) -> tuple[int, bool]:
        """Where the text before `end` stops that is still visible: if text at `end` overwrites
        its line, at the start of that line. False if that start is too far away."""
        if not end or not _OVERWRITING.match(self._read(end - 1, end + 1)):
            return end, True
        position, lowest = end, max(0, end - _MAX_OVERWRITTEN)
        block = b""
        while position > lowest:
            block = self._read(max(lowest, position - _BLOCK), position)
            position -= len(block)
            if newline := block.rfind(b"\n") + 1:
                return position + newline, True
        overwriting = _OVERWRITING.search(block) if position else None
        return position + (overwriting.end() if overwriting else 0), position == 0

    def _hole_start(self, position: int) -> int:
        start = 0
        for _ in range(_MAX_HOLES):
            hole = seek(self._descriptor, start, os.SEEK_HOLE, self.size)
            start = seek(self._descriptor, hole, os.SEEK_DATA, self.size)
            if start > position:
                return min(hole, position)
        return position


def _into_character(data: bytes) -> int:
    """The number of bytes at the start that belong to the previous character (UTF-8)."""
    count = 0
    while count < min(3, len(data)) and data[count] & 0xC0 == 0x80:
        count += 1
    return count


def _after_lines(data: bytes, position: int, count: int) -> int:
    """The position after this number of line ends."""
    for _ in range(count):
        position = data.index(b"\n", position) + 1
    return position


class Renderings:
    """Unfinished renderings, so that following a log renders only what is new.

    A missing one costs time only: `_File.rendered` makes it again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[object, ...], LogLines] = OrderedDict()

    def take(self, file: tuple[int, int], start: int, end: int, is_raw: bool) -> LogLines | None:
        with self._lock:
            return self._kept.pop((file, start, end, is_raw), None)

    def keep(self, file: tuple[int, int], lines: LogLines) -> None:
        if lines.weight > _MORE_BYTES:
            return
        with self._lock:
            self._kept[file, lines.start, lines.end, lines.is_raw] = lines
            if len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)


def search(log: Log, text: str | None, start: int) -> dict[str, object]:
    """Find the next occurrence of a text, or (`text` None) the next line that reports an error."""
    descriptor = open_log(log)
    if descriptor is None:
        return {"at": None, "searched_to": 0, "size": 0, "nth": None, "total": None}
    try:
        return log_search.search(descriptor, text, start)
    finally:
        os.close(descriptor)


def read_all(descriptor: int) -> Iterator[bytes]:
    """Read the log up to its present size, without holes; closes the descriptor."""
    try:
        size = os.fstat(descriptor).st_size
        position = 0
        while position < size:
            position = seek(descriptor, position, os.SEEK_DATA, size)
            block = os.pread(descriptor, min(_BLOCK, size - position), position)
            if not block:
                return
            hole = seek(descriptor, position, os.SEEK_HOLE, size)
            block = block[: max(1, hole - position)]
            position += len(block)
            yield block
    finally:
        os.close(descriptor)


def log_of_job(queue: Queue, job: int, attempt: int | None, stream: str) -> Log:
    return find_log(queue, job_queries.job(queue.db, job), attempt, stream)
