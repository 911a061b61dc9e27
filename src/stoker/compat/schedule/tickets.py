"""Who came first: the line in which all `schedule` processes of all users of a host wait.

A ticket is a file in the folder of the leases that its owner keeps locked; its number is its place.
Whoever dies leaves the line by that, since the kernel drops the lock. Nobody waits behind somebody
who does not want the same GPUs, nor behind a process that is stopped.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterable, Sequence

from stoker.core.fields import from_fields
from stoker.core.record import Record
from stoker.devices.leases.lease_files import lease_folder

_TICKET = "schedule."
_DOOR = "schedule-line"  # locked while somebody takes a ticket
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_DOOR_SECONDS = 2.0


class GpuWish(Record):
    """What somebody in the line waits for: so many GPUs, these ones or any."""

    needs: int
    only: tuple[int, ...] = ()  # none: any will do


def left_over(gpus: Sequence[int], ahead: Iterable[GpuWish]) -> list[int]:
    """The GPUs that nobody ahead may take; who waits for what cannot be had keeps nobody.

    >>> left_over([0, 1, 2], [Want(1, (1,))])
    [0, 2]
    >>> left_over([0, 1, 2], [Want(1, (1,)), Want(2)])
    []
    >>> left_over([0, 1, 2], [Want(4), Want(2, (1, 3))])
    [0, 1, 2]
    """
    there = set(gpus)
    left = dict.fromkeys(gpus)
    for want in ahead:
        if want.needs <= len(there) and there.issuperset(want.only):
            for gpu in want.only or there:
                left.pop(gpu, None)
    return list(left)


class TicketQueue:
    """Our place in the line, from the moment this is made until `leave`."""

    def __init__(self, want: GpuWish) -> None:
        self.folder = lease_folder()
        self._ahead: dict[str, tuple[int, int, GpuWish]] = {}  # ticket: (file, pid, want)
        door = _enter(os.path.join(self.folder, _DOOR))
        try:
            last = 0
            for name in sorted(os.listdir(self.folder)):
                number = name.removeprefix(_TICKET)
                if name.startswith(_TICKET) and number.isascii() and number.isdigit():
                    last = max(last, int(number))
                    self._follow(name)
            self._ticket = self._write(last, want)
        finally:
            os.close(door)

    def ahead(self) -> list[GpuWish]:
        """What those want who came before us and can move."""
        for name, (descriptor, _, _) in list(self._ahead.items()):
            if not _is_held(descriptor):
                os.close(descriptor)
                del self._ahead[name]
        return [want for _, pid, want in self._ahead.values() if not _is_stopped(pid)]

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
        """Keep an eye on a ticket; one that nobody holds is thrown away."""
        path = os.path.join(self.folder, name)
        try:
            descriptor = os.open(path, os.O_RDONLY | _FLAGS)
        except OSError:
            return
        if not _is_held(descriptor):
            os.close(descriptor)
            _remove(path)
            return
        pid, want = _read(descriptor)
        self._ahead[name] = (descriptor, pid, want)

    def _write(self, last: int, want: GpuWish) -> tuple[str, int]:
        while True:
            last += 1
            path = os.path.join(self.folder, f"{_TICKET}{last:010}")
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600)
            except FileExistsError:
                continue  # somebody else's that is not held any more, and that we may not remove
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.write(descriptor, json.dumps({"pid": os.getpid(), **want._asdict()}).encode())
            os.fchmod(descriptor, 0o644)
            return path, descriptor


def _enter(path: str) -> int:
    """One at a time, but not behind somebody who never leaves."""
    try:
        descriptor = os.open(path, os.O_RDONLY | _FLAGS)
    except FileNotFoundError:
        mask = os.umask(0)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | _FLAGS, 0o444)
        finally:
            os.umask(mask)
    give_up = time.monotonic() + _DOOR_SECONDS
    while time.monotonic() < give_up:
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


def _read(descriptor: int) -> tuple[int, GpuWish]:
    try:
        ticket = json.loads(os.pread(descriptor, 1 << 16, 0))
        if isinstance(ticket, list):  # of 0.1
            ticket = dict(zip(("pid", *GpuWish._fields), ticket, strict=False))
        want = from_fields(GpuWish, ticket)
        return int(ticket["pid"]), GpuWish(int(want.needs), tuple(int(gpu) for gpu in want.only))
    except (ValueError, TypeError, KeyError, OSError, RecursionError):
        return 0, GpuWish(1)  # whatever it wants, it was here first


def _is_stopped(pid: int) -> bool:
    """Whether somebody pressed Ctrl-Z there."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except OSError:
        return False


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # another user's; whoever looks sees that nobody holds it
