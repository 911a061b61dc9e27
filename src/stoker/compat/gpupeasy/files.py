"""Output files of jobs: which one is meant, how it is made, what is at its end."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from stoker.compat.gpupeasy.jobs import Refused
from stoker.store.job_queries import JobRow

_MAX_LOG_BYTES = 4 << 20
_BLOCK = 1 << 16


def same_file(path: str, folder: str) -> tuple[str, str]:
    """Equal for all ways to write one file: a link on the way is followed, one at its end is not.

    >>> same_file("./o", "/") == same_file("/usr/../o", "/tmp") == ("/", "o")
    True
    """
    above, name = os.path.split(os.path.join(folder, path))
    try:
        return os.path.realpath(above), name
    except (OSError, ValueError):
        return above, name


def written_to(out: str, rows: Iterable[JobRow]) -> JobRow | None:
    """The first job whose output file is meant; relative names are those of a job's own folder."""
    wanted: dict[str, tuple[str, str]] = {}
    own: dict[str, str] = {}  # folders as they were written, and where they are
    for row in rows:
        if not row.stdout or not out:
            continue
        if row.cwd not in wanted:
            wanted[row.cwd] = same_file(out, row.cwd)
        above, name = os.path.split(row.stdout)
        if name != wanted[row.cwd][1]:
            continue
        if above not in own:
            own[above] = same_file(row.stdout, row.cwd)[0]
        if (own[above], name) == wanted[row.cwd]:
            return row
    return None


def create(path: str, place: int | None = None) -> None:
    """A new file, never one that is there, nor through a link that somebody left."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        os.close(os.open(path, flags, 0o666))
    except (OSError, ValueError):
        raise Refused(f"Could not open output file: {path}", place) from None


def last_lines(path: str, count: int) -> str:
    """The last lines of a file, found from its end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise OSError
        start, data = info.st_size, b""
        # The last line may or may not be ended: one more line end than lines finds the beginning.
        while start > 0 and data[:-1].count(b"\n") < count and len(data) < _MAX_LOG_BYTES:
            size = min(_BLOCK, start)
            start -= size
            file.seek(start)
            data = file.read(size) + data
    parts = data.split(b"\n")  # not splitlines: a progress bar is one line
    lines = [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
    return b"".join(lines[-count:] if count else []).decode("utf-8", "replace")
