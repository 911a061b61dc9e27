"""Records of a foreground run: a job, how it ended, and the summary of the run."""

from __future__ import annotations

import os

from stoker.core.record import Record
from stoker.supervisor.messages import INHERIT

__all__ = ["INHERIT", "End", "Job", "Summary", "wants_zero"]

# Shells use exit codes above 128 for signals; `stoker run` has the same limit.
_MAX_FAILED = 101
_INTERRUPTED = 130


class Job(Record):
    """One command in one slot: a string for the shell, or a tuple of arguments without a shell."""

    command: str | tuple[str, ...]
    stdout: str | None = None  # a file, truncated; None: inherited
    stderr: str | None = None  # a file; None: the same as stdout; INHERIT: inherited
    env: tuple[
        tuple[str, str], ...
    ] = ()  # added to the environment, overrides the slot's variables
    cwd: str | None = None  # None: the current directory
    grace: float | None = None  # seconds from SIGTERM to SIGKILL; None: the default
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
