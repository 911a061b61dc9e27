"""The queue of all `schedule` processes of all users of a host, in order of arrival.

A ticket is a file in the lease folder; its number is the position in the queue, and its owner keeps
it locked. The kernel releases the lock of a process that dies, which thereby leaves the queue. A
process does not wait for others that need different GPUs, nor for stopped processes.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterable, Sequence

from stoker.engine.devices.leases.lease_files import lease_folder
from stoker.fields import from_fields
from stoker.record import Record

_TICKET = "schedule."
# Locked while a process creates its ticket. Release 0.1 locks a file of this name, and processes
# of both releases share one queue.
_QUEUE_LOCK = "schedule-line"
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_LOCK_SECONDS = 2.0


class GpuRequest(Record):
    """The GPUs that a process in the queue waits for."""

    needs: int  # number of GPUs
    only: tuple[int, ...] = ()  # indices; empty: any GPUs


def left_over(gpus: Sequence[int], ahead: Iterable[GpuRequest]) -> list[int]:
    """The GPUs that no request ahead can take. Requests that cannot be met are ignored.

    >>> left_over([0, 1, 2], [GpuRequest(1, (1,))])
    [0, 2]
    >>> left_over([0, 1, 2], [GpuRequest(1, (1,)), GpuRequest(2)])
    []
    >>> left_over([0, 1, 2], [GpuRequest(4), GpuRequest(2, (1, 3))])
    [0, 1, 2]
    """
    usable = set(gpus)
    left = dict.fromkeys(gpus)
    for request in ahead:
        if request.needs <= len(usable) and usable.issuperset(request.only):
            for gpu in request.only or usable:
                left.pop(gpu, None)
    return list(left)


class TicketQueue:
    """The position of this process in the queue, from construction until `leave`."""

    def __init__(self, request: GpuRequest) -> None:
        self.folder = lease_folder()
        self._ahead: dict[str, tuple[int, int, GpuRequest]] = {}  # ticket: (file, pid, request)
        queue_lock = _take_queue_lock(os.path.join(self.folder, _QUEUE_LOCK))
        try:
            last = 0
            for name in sorted(os.listdir(self.folder)):
                number = name.removeprefix(_TICKET)
                if name.startswith(_TICKET) and number.isascii() and number.isdigit():
                    last = max(last, int(number))
                    self._follow(name)
            self._ticket = self._write(last, request)
        finally:
            os.close(queue_lock)

    def ahead(self) -> list[GpuRequest]:
        """The requests of the processes ahead of this one, without stopped processes."""
        for name, (descriptor, _, _) in list(self._ahead.items()):
            if not _is_held(descriptor):
                os.close(descriptor)
                del self._ahead[name]
        return [request for _, pid, request in self._ahead.values() if not _is_stopped(pid)]

    def leave(self) -> None:
        path, descriptor = self._ticket
        if descriptor >= 0:
            self._ticket = (path, -1)
            _remove(path)
            os.close(descriptor)
        for other, _, _ in self._ahead.values():
            os.close(other)
        self._ahead.clear()

    def _follow(self, name: str) -> None:
        """Track a ticket; remove it if its owner is gone."""
        path = os.path.join(self.folder, name)
        try:
            descriptor = os.open(path, os.O_RDONLY | _FLAGS)
        except OSError:
            return
        if not _is_held(descriptor):
            os.close(descriptor)
            _remove(path)
            return
        pid, request = _read(descriptor)
        self._ahead[name] = (descriptor, pid, request)

    def _write(self, last: int, request: GpuRequest) -> tuple[str, int]:
        while True:
            last += 1
            path = os.path.join(self.folder, f"{_TICKET}{last:010}")
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600)
            except FileExistsError:
                continue  # left behind by another user, whose file we may not remove
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.write(descriptor, json.dumps({"pid": os.getpid(), **request._asdict()}).encode())
            os.fchmod(descriptor, 0o644)
            return path, descriptor


def _take_queue_lock(path: str) -> int:
    """Lock the queue; after two seconds continue without the lock, whose holder may hang."""
    try:
        descriptor = os.open(path, os.O_RDONLY | _FLAGS)
    except FileNotFoundError:
        mask = os.umask(0)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | _FLAGS, 0o444)
        finally:
            os.umask(mask)
    deadline = time.monotonic() + _LOCK_SECONDS
    while time.monotonic() < deadline:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            time.sleep(0.001)
    return descriptor


def _is_held(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def _read(descriptor: int) -> tuple[int, GpuRequest]:
    try:
        ticket = json.loads(os.pread(descriptor, 1 << 16, 0))
        if isinstance(ticket, list):  # written by release 0.1
            ticket = dict(zip(("pid", *GpuRequest._fields), ticket, strict=False))
        request = from_fields(GpuRequest, ticket)
        only = tuple(int(gpu) for gpu in request.only)
        return int(ticket["pid"]), GpuRequest(int(request.needs), only)
    except (ValueError, TypeError, KeyError, OSError, RecursionError):
        return 0, GpuRequest(1)  # unreadable: assume that it needs any GPU


def _is_stopped(pid: int) -> bool:
    """Whether the process is stopped, e.g. by Ctrl-Z."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except OSError:
        return False


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # the file of another user; it is ignored because it is not locked
