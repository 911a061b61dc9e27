"""The jobs of a foreground run, how they end, and their sources, e.g. the lines of a file."""

from __future__ import annotations

import os
import select
from collections.abc import Callable

from stoker.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol
else:
    Protocol = object  # typing takes 2 ms to import

# Shells use exit codes above 128 for signals; `stoker run` has the same limit.
_MAX_FAILED = 101
_INTERRUPTED = 130
_READ = 1 << 16


class Job(Record):
    """One command in one slot: a string for the shell, or a tuple of arguments without a shell."""

    command: str | tuple[str, ...]
    stdout: str | None = None  # a file, truncated; None: inherited
    stderr: str | None = None  # a file; None: the same as stdout
    env: tuple[tuple[str, str], ...] = ()  # overrides the slot's variables
    keep_children: bool = False  # background processes may outlive the job
    key: object = None  # identifies the job for the compatible command


class End(Record):
    """How a job ended: with an exit code, or by a signal."""

    code: int | None
    signal: int | None
    cause: str  # exit, signal, user (cancelled), start_failed, ...
    detail: str | None = None

    @property
    def is_good(self) -> bool:
        return self.code == 0 and self.cause == "exit"

    @property
    def returncode(self) -> int:
        """The exit code; for a signal its negative number, as in `subprocess`."""
        if self.signal is not None:
            return -self.signal
        return 1 if self.code is None else self.code


class Summary(Record):
    done: int
    failed: int
    was_interrupted: bool  # by SIGINT, SIGTERM or SIGHUP; draining does not count

    def exit_code(self, zero: bool = False) -> int:
        """The number of failed jobs (at most 101), 0 if `zero`, 130 after an interrupt."""
        if self.was_interrupted:
            return _INTERRUPTED
        return 0 if zero else min(self.failed, _MAX_FAILED)


def wants_zero(flag: bool = False) -> bool:
    """Whether failed jobs leave the exit code at 0: `--exit-zero` or STOKER_COMPAT_EXIT_ZERO."""
    return flag or os.environ.get("STOKER_COMPAT_EXIT_ZERO", "") not in ("", "0")


# -- sources of jobs -------------------------------------------------------------------------------


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


def open_lines(path: str) -> int:
    """Open a file for LineJobs. Raises OSError, also for a directory."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    os.read(descriptor, 0)
    return descriptor


def _can_poll(descriptor: int) -> bool:
    """Whether epoll accepts the descriptor; regular files are always ready and are refused."""
    with select.epoll() as poll:
        try:
            poll.register(descriptor)
        except PermissionError:
            return False
    return True


def working_directory() -> str:
    """The current directory, or `.` if it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return "."
