"""From the end of the line to a lease: waits without polling, in the order of arrival."""

from __future__ import annotations

import ctypes
import os
import select
from collections.abc import Callable, Sequence

from stoker.compat.schedule.options import Call
from stoker.compat.schedule.tickets import GpuWish, TicketQueue, left_over
from stoker.devices.leases.any_of import AnyOf
from stoker.devices.leases.holders import DeviceClaim
from stoker.devices.leases.lease import Lease

_IN_MODIFY, _IN_CLOSE_WRITE, _IN_CLOSE_NOWRITE, _IN_DELETE = 0x2, 0x8, 0x10, 0x200
# The kernel tells of a close a moment before it drops the lock.
_AGAIN_SECONDS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064)
_DEAF_SECONDS = 0.05


class FileWatch:
    """Whether somebody closed, removed or changed one of some files."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = int(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._is_deaf = self._descriptor < 0  # a user may have 128 of them
        self._known: set[str] = set()
        self._again: list[float] = []

    def watch(self, path: str, events: int) -> bool:
        """True when it was not watched before: something may have been missed."""
        if self._is_deaf or path in self._known:
            return False
        self._known.add(path)
        self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), events)
        return True

    def wait(self, wake: int, longest: float) -> None:
        """Until it is time to look again, or `wake` has something."""
        seconds = min(longest, _DEAF_SECONDS) if self._is_deaf else longest
        if self._again:
            seconds = self._again.pop(0)
        listen = [wake] if self._is_deaf else [wake, self._descriptor]
        if self._descriptor in select.select(listen, [], [], seconds)[0]:
            os.read(self._descriptor, 1 << 16)
            self._again = list(_AGAIN_SECONDS)

    def close(self) -> None:
        if not self._is_deaf:
            os.close(self._descriptor)


class QueuePlace:
    """A place in the line for what a call wants."""

    def __init__(self, call: Call, claim_of: Callable[[int], DeviceClaim]) -> None:
        self._call = call
        is_exact = len(call.force) == call.needs
        self._line = TicketQueue(GpuWish(call.needs, call.force if is_exact else ()))
        self._stand = AnyOf(claim_of)
        self._news = FileWatch()

    def look(self, usable: Sequence[int]) -> tuple[Lease, tuple[int, ...]] | None:
        """The lease and the GPUs, when it is our turn and they are free."""
        call = self._call
        may_have = left_over(usable, self._line.ahead())
        wanted = list(call.force)
        if len(wanted) < call.needs:
            wanted = list(dict.fromkeys((*wanted, *call.prefer, *may_have)))
        if not set(call.force) <= set(may_have):
            wanted = []
        wanted = [gpu for gpu in wanted if gpu in may_have]
        return self._stand.look(wanted, call.needs, len(call.force))

    def wait(self, wake: int, state_file: str, longest: float) -> None:
        """Until there is reason to look again, or `wake` has something."""
        # Tickets are open for writing; that somebody looked at a lock is no news.
        is_new = self._news.watch(self._line.folder, _IN_DELETE | _IN_CLOSE_WRITE)
        is_new |= self._news.watch(state_file, _IN_MODIFY)
        for path in self._stand.files():
            is_new |= self._news.watch(path, _IN_CLOSE_NOWRITE)
        if not is_new:
            self._news.wait(wake, longest)

    def rest(self) -> None:
        """Keep nobody from any GPU before the next look."""
        self._stand.close()

    @property
    def ahead(self) -> int:
        return len(self._line.ahead())

    def leave(self) -> None:
        self._stand.close()
        self._line.leave()
        self._news.close()
