"""Log files that are made once and serve until somebody writes into one.

A new file costs a job that does nothing a tenth of its time. So in the foreground a job is started
with an empty file that has no name of its own yet. It gets its name when the job has run for a
moment, has printed something, or has failed; one that was not needed serves the next job. A job
that succeeds without a word leaves no log.
"""

from __future__ import annotations

import os

# Until then nobody can have looked for the log; afterwards `tail -f` finds it.
NAMELESS_SECONDS = 0.05
PREFIX = ".spare-"


class PooledLog:
    """A file in the hands of one job."""

    __slots__ = ("descriptor", "path", "spare")

    def __init__(self, descriptor: int, spare: str, path: str) -> None:
        self.descriptor = descriptor
        self.spare: str | None = spare  # its name while it has none; None: it has
        self.path = path

    def name(self) -> None:
        """From now on it is this job's, whatever happens."""
        if self.spare is not None:
            os.rename(self.spare, self.path)
            self.spare = None


class LogPool:
    def __init__(self) -> None:
        self._idle: list[tuple[int, str]] = []
        self._made = 0

    def lend(self, path: str) -> PooledLog:
        """A log for the job that would write to `path`; OSError as open would raise it."""
        if self._idle:
            descriptor, spare = self._idle.pop()
            return PooledLog(descriptor, spare, path)
        spare = self._new_name(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        return PooledLog(os.open(spare, flags, 0o600), spare, path)

    def take_back(self, log: PooledLog, *, keep: bool) -> None:
        """The job is over, and nothing of it can write any more."""
        if keep or os.fstat(log.descriptor).st_size:
            log.name()
            os.close(log.descriptor)
            return
        if log.spare is None:
            log.spare = self._new_name(log.path)
            try:
                os.rename(log.path, log.spare)
            except OSError:  # somebody removed it
                os.close(log.descriptor)
                return
        self._idle.append((log.descriptor, log.spare))

    def _new_name(self, path: str) -> str:
        self._made += 1
        return f"{os.path.dirname(path)}/{PREFIX}{os.getpid()}-{self._made}"

    def close(self) -> None:
        for descriptor, spare in self._idle:
            os.close(descriptor)
            os.unlink(spare)
        self._idle.clear()
