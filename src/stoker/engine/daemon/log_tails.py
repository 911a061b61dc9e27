"""Reads the last bytes of a log, even if its file system may hang (e.g. NFS)."""

from __future__ import annotations

import os
import select
import signal
import time

from stoker.engine.supervisor.mounts import Mounts
from stoker.engine.supervisor.regular_files import open_for_reading
from stoker.text.byte_text import to_system

TAIL_BYTES = 64 << 10
_TIMEOUT_SECONDS = 1.0
_PAUSE_SECONDS = 60.0  # after a read timed out


class LogTails:
    def __init__(self) -> None:
        self._mounts = Mounts()
        self._not_before = 0.0
        self._stuck: list[int] = []  # helper processes that have not ended yet

    def read(self, path: str) -> bytes:
        """At most the last 64 KiB; b"" if the file cannot be read now."""
        if not self._mounts.may_hang(to_system(path)):
            return _last_bytes(path)
        self._stuck = [pid for pid in self._stuck if not _has_ended(pid)]
        now = time.monotonic()
        if now < self._not_before:
            return b""
        try:
            data = self._read_in_child(to_system(path), now + _TIMEOUT_SECONDS)
        except OSError:
            return b""
        if data is None:
            self._not_before = time.monotonic() + _PAUSE_SECONDS
        return data or b""

    def _read_in_child(self, path: bytes, deadline: float) -> bytes | None:
        """Read the file with `tail` in a child process; None if it does not finish in time."""
        reading, writing = os.pipe2(os.O_CLOEXEC)
        try:
            try:
                pid = os.posix_spawnp(
                    "tail",
                    [b"tail", b"-c", b"%d" % TAIL_BYTES, b"--", path],
                    os.environ,
                    file_actions=[
                        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                        (os.POSIX_SPAWN_DUP2, writing, 1),
                        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                    ],
                )
            finally:
                os.close(writing)
            data = b""
            while select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
                piece = os.read(reading, TAIL_BYTES)
                data += piece
                if not piece or len(data) > TAIL_BYTES:
                    break
            else:
                os.kill(pid, signal.SIGKILL)
                if not _has_ended(pid):
                    self._stuck.append(pid)
                return None
            os.waitpid(pid, 0)
            return data[:TAIL_BYTES]
        finally:
            os.close(reading)


def _has_ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:  # collected together with orphans of jobs
        return True


def _last_bytes(path: str) -> bytes:
    try:
        descriptor = open_for_reading(path)
    except OSError:
        return b""
    try:
        size = os.fstat(descriptor).st_size
        return os.pread(descriptor, TAIL_BYTES, max(0, size - TAIL_BYTES))
    except OSError:
        return b""
    finally:
        os.close(descriptor)
