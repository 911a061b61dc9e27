"""Sources of jobs: a list, or the lines of a file descriptor. hog/jobs.py has more of them."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterable

from stoker.compat.foreground.jobs import Job

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol
else:
    Protocol = object  # typing takes 2 ms to import

_READ = 1 << 16
_AT_A_TIME = 64


class JobSource(Protocol):
    """Supplies jobs until `at_end` is true."""

    @property
    def descriptor(self) -> int | None:
        """Becomes readable when there may be more jobs; None if `read` never blocks."""

    @property
    def at_end(self) -> bool: ...
    @property
    def pid(self) -> int | None:
        """The child process that produces the jobs, if any."""

    def read(self) -> list[Job]: ...
    def close(self) -> None: ...


class ListedJobs:
    """The jobs of an iterable that never blocks."""

    descriptor = None
    pid = None

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._jobs = iter(jobs)
        self.at_end = False

    def read(self) -> list[Job]:
        found = [job for _, job in zip(range(_AT_A_TIME), self._jobs, strict=False)]
        self.at_end = len(found) < _AT_A_TIME
        return found

    def close(self) -> None:
        self.at_end = True


class LineJobs:
    """One job per line, as soon as the line arrives. A trailing backslash joins lines."""

    pid = None

    def __init__(self, descriptor: int, make: Callable[[str], Job | None]) -> None:
        self._descriptor = descriptor
        self._can_poll = _can_poll(descriptor)
        self._make = make
        self._rest = b""
        self._joined = ""
        self.at_end = False
        self.failure: str | None = None  # the read error, if there was one

    @property
    def descriptor(self) -> int | None:
        return self._descriptor if self._can_poll else None

    def read(self) -> list[Job]:
        try:
            data = os.read(self._descriptor, _READ)
        except OSError as error:
            data, self.failure = b"", error.strerror
        *lines, self._rest = (self._rest + data).split(b"\n")
        if not data:
            self.at_end = True
            lines += [self._rest] if self._rest else []
        commands = [text for line in lines if (text := self._join(os.fsdecode(line))) is not None]
        if self.at_end and self._joined:
            commands.append(self._joined)
        return [job for command in commands if (job := self._make(command)) is not None]

    def _join(self, line: str) -> str | None:
        line, self._joined = self._joined + line.removesuffix("\r"), ""
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2
        if is_continued and not line.lstrip().startswith("#"):  # comments are not continued
            self._joined = line[:-1]
            return None
        return line

    def read_rest(self) -> list[Job]:
        """The jobs that can be read without blocking."""
        found: list[Job] = []
        while not self.at_end and select.select([self._descriptor], [], [], 0)[0]:
            found += self.read()
        return found

    def close(self) -> None:
        """The descriptor stays open: it belongs to the caller."""


def _can_poll(descriptor: int) -> bool:
    """Whether epoll accepts the descriptor; regular files are always ready and are refused."""
    with select.epoll() as poll:
        try:
            poll.register(descriptor)
        except PermissionError:
            return False
    return True
