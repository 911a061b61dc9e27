"""What a door asks for, and what it is told: a job, its end, and the sum of all."""

from __future__ import annotations

import os

from stoker.core.record import Record
from stoker.supervisor.messages import INHERIT

__all__ = ["INHERIT", "End", "Job", "Summary", "wants_zero"]

# What a shell can tell apart from a signal; `stoker run` does the same.
_MOST_FAILED = 101
_INTERRUPTED = 130


class Job(Record):
    """One command in one slot. A text is for the shell, a tuple of words is executed as it is."""

    command: str | tuple[str, ...]
    stdout: str | None = None  # a file, made anew; None: ours
    stderr: str | None = None  # a file; None: where stdout goes; INHERIT: ours
    env: tuple[tuple[str, str], ...] = ()  # on top of our environment and of the device's
    cwd: str | None = None  # None: where we are
    grace: float | None = None  # seconds from SIGTERM to SIGKILL; None: as for all
    keep_children: bool = False  # processes that it leaves behind may stay
    key: object = None  # whatever the door wants to know it by


class End(Record):
    """How a job ended: by an exit code, or by a signal."""

    code: int | None
    signal: int | None
    cause: str  # exit, signal, user (we were told to stop), start_failed, ...
    detail: str | None = None

    @property
    def is_good(self) -> bool:
        return self.code == 0 and self.cause == "exit"

    @property
    def returncode(self) -> int:
        """As subprocess has it: a signal is negative."""
        if self.signal is not None:
            return -self.signal
        return 1 if self.code is None else self.code


class Summary(Record):
    done: int
    failed: int
    was_interrupted: bool  # by SIGINT, SIGTERM or SIGHUP; a drained run was not

    def exit_code(self, zero: bool = False) -> int:
        """The number of failed jobs, as far as an exit code can tell."""
        if self.was_interrupted:
            return _INTERRUPTED
        return 0 if zero else min(self.failed, _MOST_FAILED)


def wants_zero(flag: bool = False) -> bool:
    """Whether failed jobs should not show in the exit code: `--exit-zero`, or the environment."""
    return flag or os.environ.get("STOKER_COMPAT_EXIT_ZERO", "") not in ("", "0")
