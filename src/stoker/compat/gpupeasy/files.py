"""Output files of jobs: identify, create and read them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from stoker.compat.gpupeasy.jobs import InvalidSubmission
from stoker.store.job_queries import JobRow

_MAX_LOG_BYTES = 4 << 20
_BLOCK = 1 << 16


def same_file(path: str, folder: str) -> tuple[str, str]:
    """A key that is equal for all spellings of a path; symlinks are resolved except the last.

    >>> same_file("./o", "/") == same_file("/usr/../o", "/tmp") == ("/", "o")
    True
    """
    parent, name = os.path.split(os.path.join(folder, path))
    try:
        return os.path.realpath(parent), name
    except (OSError, ValueError):
        return parent, name


def find_by_output(out: str, rows: Iterable[JobRow]) -> JobRow | None:
    """The first job with this output file; relative paths are relative to the job's folder."""
    wanted: dict[str, tuple[str, str]] = {}
    resolved: dict[str, str] = {}  # folders as given -> real paths
    for row in rows:
        if not row.stdout or not out:
            continue
        if row.cwd not in wanted:
            wanted[row.cwd] = same_file(out, row.cwd)
        parent, name = os.path.split(row.stdout)
        if name != wanted[row.cwd][1]:
            continue
        if parent not in resolved:
            resolved[parent] = same_file(row.stdout, row.cwd)[0]
        if (resolved[parent], name) == wanted[row.cwd]:
            return row
    return None


def create(path: str, index: int | None = None) -> None:
    """Create a new file; never opens an existing file or a symlink. Raises InvalidSubmission."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        os.close(os.open(path, flags, 0o666))
    except (OSError, ValueError):
        raise InvalidSubmission(f"Could not open output file: {path}", index) from None


def last_lines(path: str, count: int) -> str:
    """The last lines of a file, read backwards from its end. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise OSError
        start, data = info.st_size, b""
        # The last newline may be missing, so look for one more newline than lines.
        while start > 0 and data[:-1].count(b"\n") < count and len(data) < _MAX_LOG_BYTES:
            size = min(_BLOCK, start)
            start -= size
            file.seek(start)
            data = file.read(size) + data
    parts = data.split(b"\n")  # not splitlines: a progress bar with \r is one line
    lines = [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
    return b"".join(lines[-count:] if count else []).decode("utf-8", "replace")
