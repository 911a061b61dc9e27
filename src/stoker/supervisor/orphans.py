"""Attempts whose runner died under them: watched by handle, ended by tag.

Their exit codes can still be had: as their parent (they fell to the daemon that had started the
runner), or from the kernel (6.15 and later tell the exit status of any process whose handle was
open). Otherwise the end is honest: `lost`.
"""

from __future__ import annotations

import fcntl
import os
import time

from stoker.core.model import Outcome
from stoker.supervisor import members

_PIDFD_GET_INFO = 0xC0000000 | 64 << 16 | 0xFF << 8 | 11
_PIDFD_INFO_EXIT = 1 << 3
_LOOK_AGAIN_SECONDS = 0.2
# How long init may take to collect an orphan before its exit code is given up.
_STATUS_SECONDS = 5.0


class _Orphan:
    __slots__ = (
        "ended_at", "ends_by", "grace", "handle", "kill_at", "pid", "reason", "status", "tag",
    )  # fmt: skip

    def __init__(self, tag: int, pid: int | None, ends_by: float | None, grace: float) -> None:
        self.tag = tag
        self.pid = pid
        self.ends_by = ends_by
        self.grace = grace
        self.handle: int | None = None
        self.kill_at: float | None = None
        self.reason: str | None = None
        self.status: int | None = None
        self.ended_at: float | None = None


class Orphans:
    def __init__(self, tag_base: int) -> None:
        self._tag_base = tag_base
        self._by_attempt: dict[int, _Orphan] = {}

    def __len__(self) -> int:
        return len(self._by_attempt)

    def __contains__(self, attempt: int) -> bool:
        return attempt in self._by_attempt

    def adopt(
        self, attempt: int, pid: int | None, ends_by: float | None = None, grace: float = 10.0
    ) -> bool:
        """Watch an attempt if anything of it is alive; its exit may already be ours to collect.

        Its time limit is ours to keep now.
        """
        tag = members.tag_of(self._tag_base, attempt)
        if pid is None or members.read_tag(pid) != tag:
            pid = members.first_process(tag)  # the runner died before it could tell
        orphan = _Orphan(tag, pid, ends_by, grace)
        if pid is not None:
            try:
                orphan.handle = os.pidfd_open(pid)
            except OSError:
                pass
        if orphan.handle is None and not members.members(tag):
            return False
        self._by_attempt[attempt] = orphan
        return True

    def handles(self) -> list[int]:
        """Descriptors that become readable when something ends."""
        waiting = (o for o in self._by_attempt.values() if o.ended_at is None)
        return [o.handle for o in waiting if o.handle is not None]

    def stop(self, attempt: int, reason: str, grace: float) -> None:
        orphan = self._by_attempt[attempt]
        if orphan.kill_at is None:
            orphan.reason = reason
            members.ask_to_end(orphan.tag)
            orphan.kill_at = time.monotonic() + grace
            orphan.ends_by = None

    def next_deadline(self) -> float | None:
        orphans = self._by_attempt.values()
        times = [at for o in orphans for at in (o.kill_at, o.ends_by) if at is not None]
        if any(o.handle is None or o.ended_at for o in self._by_attempt.values()):
            # Nothing to wait on: the first process is gone, what is left is no child of ours.
            times.append(time.monotonic() + _LOOK_AGAIN_SECONDS)
        return min(times, default=None)

    def reap(self) -> list[Outcome]:
        over = []
        for attempt, orphan in list(self._by_attempt.items()):
            if orphan.ends_by is not None and time.monotonic() >= orphan.ends_by:
                self.stop(attempt, "time_limit", orphan.grace)
            if orphan.kill_at is not None and time.monotonic() >= orphan.kill_at:
                members.kill(orphan.tag)
                orphan.kill_at = time.monotonic() + 1.0
            if orphan.handle is not None:
                self._collect(orphan)
            if orphan.handle is None and not members.members(orphan.tag):
                del self._by_attempt[attempt]
                over.append(self._outcome(attempt, orphan))
        return over

    def _collect(self, orphan: _Orphan) -> None:
        """Take the status of a first process that has exited."""
        assert orphan.handle is not None
        try:
            pid, status = os.waitpid(orphan.pid or -1, os.WNOHANG)
            if pid == 0:
                return
            orphan.status = status
        except ChildProcessError:
            if orphan.pid in members.members(orphan.tag):
                return
            orphan.ended_at = orphan.ended_at or time.time()
            orphan.status = exit_status(orphan.handle)
            if orphan.status is None and time.time() < orphan.ended_at + _STATUS_SECONDS:
                return  # its new parent has not collected it yet; the kernel tells only then
        orphan.ended_at = orphan.ended_at or time.time()
        os.close(orphan.handle)
        orphan.handle = None
        if orphan.kill_at is None and members.members(orphan.tag):
            self.stop_leftovers(orphan)

    def stop_leftovers(self, orphan: _Orphan) -> None:
        members.ask_to_end(orphan.tag)
        orphan.kill_at = time.monotonic() + 2.0

    def _outcome(self, attempt: int, orphan: _Orphan) -> Outcome:
        reason = orphan.reason
        if orphan.status is None and reason is None:
            reason = "lost"
        return Outcome(attempt, orphan.status, orphan.ended_at or time.time(), reason)


def exit_status(handle: int) -> int | None:
    """The wait status of an exited process that is not our child, where the kernel tells."""
    buffer = bytearray(64)  # struct pidfd_info: the wanted mask first, the exit code last
    buffer[:8] = _PIDFD_INFO_EXIT.to_bytes(8, "little")
    try:
        fcntl.ioctl(handle, _PIDFD_GET_INFO, buffer)
    except OSError:
        return None  # an older kernel
    if not int.from_bytes(buffer[:8], "little") & _PIDFD_INFO_EXIT:
        return None  # not collected by its parent yet
    return int.from_bytes(buffer[60:64], "little", signed=True)
