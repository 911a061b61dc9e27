"""Wait in the queue until the GPUs of a call can be leased; woken by inotify."""

from __future__ import annotations

import ctypes
import os
import select
from collections.abc import Callable, Sequence

from stoker.compat.schedule.options import Call
from stoker.compat.schedule.tickets import GpuRequest, TicketQueue, left_over
from stoker.engine.devices.leases.any_gpu_lease import AnyGpuLease
from stoker.engine.devices.leases.holders import DeviceClaim
from stoker.engine.devices.leases.lease import Lease

_IN_MODIFY, _IN_CLOSE_WRITE, _IN_CLOSE_NOWRITE, _IN_DELETE = 0x2, 0x8, 0x10, 0x200
# The kernel reports a close shortly before it releases the lock, so check again several times.
_RECHECK_SECONDS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064)
_POLL_SECONDS = 0.05  # without inotify


class FileWatch:
    """Waits until one of several files is closed, removed or changed."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = int(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._is_polling = self._descriptor < 0  # the limit is 128 per user
        self._watched: set[str] = set()
        self._rechecks: list[float] = []

    def watch(self, path: str, events: int) -> bool:
        """Watch a file; True if it is new, so that a change may have been missed."""
        if self._is_polling or path in self._watched:
            return False
        self._watched.add(path)
        self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), events)
        return True

    def wait(self, wake: int, longest: float) -> None:
        """Wait for a change, for `wake` to be readable, or for `longest` seconds."""
        seconds = min(longest, _POLL_SECONDS) if self._is_polling else longest
        if self._rechecks:
            seconds = self._rechecks.pop(0)
        descriptors = [wake] if self._is_polling else [wake, self._descriptor]
        if self._descriptor in select.select(descriptors, [], [], seconds)[0]:
            os.read(self._descriptor, 1 << 16)
            self._rechecks = list(_RECHECK_SECONDS)

    def close(self) -> None:
        if not self._is_polling:
            os.close(self._descriptor)


class QueuePlace:
    """The place of a call in the queue."""

    def __init__(self, call: Call, claim_of: Callable[[int], DeviceClaim]) -> None:
        self._call = call
        is_exact = len(call.force) == call.needs
        self._queue = TicketQueue(GpuRequest(call.needs, call.force if is_exact else ()))
        self._leases = AnyGpuLease(claim_of)
        self._watch = FileWatch()

    def try_lease(self, usable: Sequence[int]) -> tuple[Lease, tuple[int, ...]] | None:
        """The lease and its GPUs; None if they are not free or go to a process ahead."""
        call = self._call
        allowed = left_over(usable, self._queue.ahead())
        wanted = list(call.force)
        if len(wanted) < call.needs:
            wanted = list(dict.fromkeys((*wanted, *call.prefer, *allowed)))
        if not set(call.force) <= set(allowed):
            wanted = []
        wanted = [gpu for gpu in wanted if gpu in allowed]
        return self._leases.try_take(wanted, call.needs, len(call.force))

    def wait(self, wake: int, state_file: str, longest: float) -> None:
        """Wait until `try_lease` may succeed, `wake` is readable, or `longest` seconds passed."""
        # Tickets are opened for writing by their owner only; reading a lock causes no event.
        is_new = self._watch.watch(self._queue.folder, _IN_DELETE | _IN_CLOSE_WRITE)
        is_new |= self._watch.watch(state_file, _IN_MODIFY)
        for path in self._leases.files():
            is_new |= self._watch.watch(path, _IN_CLOSE_NOWRITE)
        if not is_new:
            self._watch.wait(wake, longest)

    def release_reservations(self) -> None:
        """Stop keeping GPUs from other processes until the next `try_lease`."""
        self._leases.close()

    @property
    def ahead(self) -> int:
        return len(self._queue.ahead())

    def leave(self) -> None:
        self._leases.close()
        self._queue.leave()
        self._watch.close()
