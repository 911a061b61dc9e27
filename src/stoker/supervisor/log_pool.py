"""A pool of empty log files for foreground jobs, which are reused until a job writes into one.

Creating a file takes a tenth of the time of a job that does nothing. So a foreground job starts
with an empty file under a temporary name. The file gets its final name when the job has run for a
moment, has printed something, or has failed; otherwise the next job uses it. A job that succeeds
without output leaves no log.
"""

from __future__ import annotations

import os

# After this time the log gets its final name, so that `tail -f` finds it.
UNNAMED_SECONDS = 0.05
PREFIX = ".spare-"


class PooledLog:
    """A log file in use by one job."""

    __slots__ = ("descriptor", "path", "temporary")

    def __init__(self, descriptor: int, temporary: str, path: str) -> None:
        self.descriptor = descriptor
        self.temporary: str | None = temporary  # None: it has its final name
        self.path = path

    def publish(self) -> None:
        """Give the file its final name; it is not reused any more."""
        if self.temporary is not None:
            os.rename(self.temporary, self.path)
            self.temporary = None


class LogPool:
    def __init__(self) -> None:
        self._idle: list[tuple[int, str]] = []
        self._made = 0
        # Workers on several hosts share a folder, and a PID is not unique among hosts.
        self._token = os.urandom(6).hex()

    def lend(self, path: str) -> PooledLog:
        """A log for the job that writes to `path`. Raises OSError if it cannot be created."""
        if self._idle:
            descriptor, temporary = self._idle.pop()
            return PooledLog(descriptor, temporary, path)
        temporary = self._new_name(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        return PooledLog(os.open(temporary, flags, 0o600), temporary, path)

    def take_back(self, log: PooledLog, *, keep: bool) -> None:
        """Return the log of a job that has ended; it is kept if `keep` or if it has content."""
        if keep or os.fstat(log.descriptor).st_size:
            log.publish()
            os.close(log.descriptor)
            return
        if log.temporary is None:
            log.temporary = self._new_name(log.path)
            try:
                os.rename(log.path, log.temporary)
            except OSError:  # the file was removed
                os.close(log.descriptor)
                return
        self._idle.append((log.descriptor, log.temporary))

    def _new_name(self, path: str) -> str:
        self._made += 1
        return f"{os.path.dirname(path)}/{PREFIX}{self._token}-{self._made}"

    def close(self) -> None:
        for descriptor, temporary in self._idle:
            os.close(descriptor)
            try:
                os.unlink(temporary)
            except FileNotFoundError:  # the folder was removed
                pass
        self._idle.clear()
