"""Where the jobs of a door come from: a list, or lines of a descriptor; see also hog_jobs.py."""

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
    """Where jobs come from, as long as it has any."""

    @property
    def descriptor(self) -> int | None:
        """Readable when there may be more; None when `read` never has to wait."""

    @property
    def at_end(self) -> bool: ...
    @property
    def pid(self) -> int | None:
        """A child of this process that makes the jobs."""

    def read(self) -> list[Job]: ...
    def close(self) -> None: ...


class ListedJobs:
    """Jobs of an iterable that is never slow."""

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
    """Lines of a descriptor, each as soon as it is there. A backslash at the end joins lines."""

    pid = None

    def __init__(self, descriptor: int, make: Callable[[str], Job | None]) -> None:
        self._descriptor = descriptor
        self._can_wait = _can_wait_for(descriptor)
        self._make = make
        self._rest = b""
        self._joined = ""
        self.at_end = False
        self.failure: str | None = None  # why it ended, if not because all was read

    @property
    def descriptor(self) -> int | None:
        return self._descriptor if self._can_wait else None

    def read(self) -> list[Job]:
        try:
            data = os.read(self._descriptor, _READ)
        except OSError as error:
            data, self.failure = b"", error.strerror
        *lines, self._rest = (self._rest + data).split(b"\n")
        if not data:
            self.at_end = True
            lines += [self._rest] if self._rest else []
        commands = [whole for line in lines if (whole := self._join(os.fsdecode(line))) is not None]
        if self.at_end and self._joined:
            commands.append(self._joined)
        return [job for command in commands if (job := self._make(command)) is not None]

    def _join(self, line: str) -> str | None:
        line, self._joined = self._joined + line.removesuffix("\r"), ""
        is_open = (len(line) - len(line.rstrip("\\"))) % 2
        if is_open and not line.lstrip().startswith("#"):  # a comment ends with its line
            self._joined = line[:-1]
            return None
        return line

    def read_rest(self) -> list[Job]:
        """What else is there already, without waiting for more."""
        found: list[Job] = []
        while not self.at_end and select.select([self._descriptor], [], [], 0)[0]:
            found += self.read()
        return found

    def close(self) -> None:
        """Others may go on reading it."""


def _can_wait_for(descriptor: int) -> bool:
    """Files and some devices are always ready, and epoll refuses them."""
    with select.epoll() as poll:
        try:
            poll.register(descriptor)
        except PermissionError:
            return False
    return True
