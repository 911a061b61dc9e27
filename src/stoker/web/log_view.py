"""Read logs by byte range. A log is identified by job and attempt, never by a path in a request."""

from __future__ import annotations

import os
from collections.abc import Iterator

from stoker.client.queue import Queue
from stoker.core.record import Record
from stoker.core.states import FINAL
from stoker.errors import NotFound
from stoker.store import job_queries
from stoker.store.job_queries import JobRow
from stoker.supervisor.logs import log_path
from stoker.supervisor.regular_files import open_for_reading
from stoker.web import log_search
from stoker.web.log_search import seek

MAX_RANGE_BYTES = 1 << 20
_BLOCK = 1 << 20


class Log(Record):
    path: str | None  # None: the job has not started
    attempt: int
    is_over: bool  # the log is complete


def find_log(queue: Queue, row: JobRow, attempt: int | None, stream: str) -> Log:
    number = row.attempts if attempt is None else attempt
    if attempt is not None and not 1 <= attempt <= row.attempts:
        raise NotFound(f"job {row.id} has no attempt {attempt}")
    is_over = row.state in FINAL or number < row.attempts
    if not row.attempts:
        return Log(None, 0, is_over)
    path = row.stdout or log_path(queue.settings.state_dir, row.id, number)
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


def read_range(log: Log, start: int | None, end: int | None, tail: int) -> dict[str, object]:
    """A range of the log, or its end, cut at character boundaries.

    Holes are skipped (the middle of a log above its size limit is removed), so `from` in the result
    can be after `start`.
    """
    descriptor = open_log(log)
    if descriptor is None:
        return {"attempt": log.attempt, "size": 0, "from": 0, "to": 0, "text": "",
                "is_over": log.is_over}  # fmt: skip
    try:
        size = os.fstat(descriptor).st_size
        if start is None:
            start = max(0, size - min(tail, MAX_RANGE_BYTES))
        start = min(start, size)
        data_at = seek(descriptor, start, os.SEEK_DATA, size)
        if data_at > start:
            start = data_at
        end = size if end is None else max(start, min(end, size))
        end = min(end, start + MAX_RANGE_BYTES, seek(descriptor, start, os.SEEK_HOLE, size))
        data = os.pread(descriptor, end - start, start) if end > start else b""
    finally:
        os.close(descriptor)
    skip = _into_character(data) if start else 0
    cut = len(data) - _cut_character(data) if not (log.is_over and end == size) else len(data)
    cut = max(cut, skip)
    return {
        "attempt": log.attempt, "size": size, "from": start + skip, "to": start + cut,
        "text": data[skip:cut].decode("utf-8", "replace"), "is_over": log.is_over,
    }  # fmt: skip


def _into_character(data: bytes) -> int:
    """The number of bytes at the start that belong to the previous character (UTF-8)."""
    count = 0
    while count < min(3, len(data)) and data[count] & 0xC0 == 0x80:
        count += 1
    return count


def _cut_character(data: bytes) -> int:
    """The number of bytes at the end that belong to an incomplete character (UTF-8)."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if length > back else 0
        if byte < 0x80:
            return 0
    return 0


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
