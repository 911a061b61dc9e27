"""Leases: the right to use a GPU, for all users, daemons and foreground runs of a host.

A lease needs no root and no cleanup. It is a set of kernel locks on one open file description per
GPU: processes that inherit the descriptor keep the locks, and they are released when the last one
closes it or dies. lease_files.py selects the files; holders.py encodes who holds how much.

**Locks.** A process takes the gate (flock, exclusive), then the lock file (flock: exclusive for the
whole GPU, shared for a part of it), then adds its record and releases the gate. The gate makes
waiting fair: a process that waits for sharers to leave holds it, so no new sharer can get in. For
several GPUs, all gates are taken before all lock files, both in PCI order, to avoid deadlocks.

**Limits.** Leases are advisory: any process can use a GPU without one, hold a gate, or unlock a
descriptor that it inherited. A container with its own network namespace has its own sysfs, so the
host does not see its locks; one with its own PID or user namespace is shown with its own ids. In
the fallback folder, the owner of a file or of the folder can remove locked files; the next process
creates a new file and does not see the old locks.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import sys
import time
from collections.abc import Mapping, Sequence

from stoker.engine.devices.leases.holders import (
    WHOLE,
    DeviceClaim,
    Holder,
    place,
    read_holders,
    sign,
)
from stoker.engine.devices.leases.lease_files import flock_pid, lease_error, lock, paths_of
from stoker.errors import Impossible

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

_POLL_SECONDS = (0.001, 0.05)  # at first, and at most
_INT = struct.Struct("i")


class Lease:
    """Locks on GPUs, held until every process with a descriptor has closed it."""

    __slots__ = ("descriptors",)

    def __init__(self, descriptors: list[int]) -> None:
        self.descriptors = descriptors  # in the order of the claims

    def close(self) -> None:
        """Close the descriptors. Not unlocked: processes that inherited them keep the lease."""
        while self.descriptors:
            os.close(self.descriptors.pop())


def try_take(claims: Sequence[DeviceClaim], unleased: Mapping[str, int] = {}) -> Lease | None:
    """Take a lease on all claims, or return None; never waits.

    `unleased` maps UUIDs to the bytes used by processes without a lease.
    """
    held = _take(claims, unleased, os.getpid(), is_patient=False)
    return None if held is None else Lease(held)


def take_patiently(claims: Sequence[DeviceClaim], pid: int) -> Lease:
    """Wait for a lease on all claims, in the queue with other processes; `pid` is the holder."""
    held = _take(claims, {}, pid, is_patient=True)
    assert held is not None
    return Lease(held)


def holders(gpus: Sequence[tuple[str, str, bool]]) -> list[Holder]:
    """Return the holders of GPUs (UUID, PCI address, whether it is a slice); takes no lock."""
    return [holder for gpu in gpus for holder in read_holders(gpu[0], paths_of(*gpu)[0])]


def first_waiters(gpus: Sequence[tuple[str, str, bool]]) -> list[Holder]:
    """Return the processes that hold the gates and so wait first; takes no lock."""
    return [holder for gpu in gpus for holder in read_holders(gpu[0], paths_of(*gpu)[1])]


def other_lock(gpu: tuple[str, str, bool]) -> int | None:
    """Return the PID of a process, not of Stoker, that locked a GPU; None if there is none.

    Raises Error if the files of the lease cannot be used. Takes no lock.
    """
    try:
        for path in paths_of(*gpu):
            pid = flock_pid(path)
            # Processes of Stoker add a record as soon as they have the lock, so look again.
            if pid and not any(read_holders(gpu[0], path)) and pid == flock_pid(path):
                return pid
    except OSError as error:
        raise lease_error(error) from None
    return None


class Waiter:
    """Waits for a lease in a separate process, because flock cannot be polled.

    The helper process exits with this process. It is a child: a parent that reaps all its children
    also reaps `pid`.
    """

    def __init__(self, claims: Sequence[DeviceClaim]) -> None:
        import json
        import socket

        _check(claims)
        for claim in claims:
            if claim.amount is not None and claim.amount > claim.total:
                raise Impossible(f"{claim.amount} bytes are more than the {claim.total} of a GPU")
        self.is_dead = False  # whether the helper exited without a lease
        self.error: str | None = None  # why, if known
        self._count = len(claims)
        words = [str(os.getpid()), json.dumps([claim._asdict() for claim in claims])]
        try:
            here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with there:
                try:
                    self.pid, self._handle = _spawn_helper(words, there.fileno())
                except OSError:
                    here.close()
                    raise
        except OSError as error:
            raise lease_error(error) from None
        self._link: socket.socket | None = here

    def fileno(self) -> int:
        """Return a descriptor that is readable when `take` has a result; -1 after the end."""
        return -1 if self._link is None else self._link.fileno()

    def take(self) -> Lease | None:
        """Return the lease, once; None if it is not there yet, or never will be (`is_dead`)."""
        if self._link is None:
            return None
        try:
            word, received = _receive(self._link, self._count)
        except BlockingIOError:
            return None
        except ConnectionError:
            word, received = b"", []
        lease = Lease(received)
        self._end()
        if word == b"ok" and len(received) == self._count:
            return lease
        lease.close()
        self.is_dead = True
        if word:
            text = word.decode(errors="replace")
            self.error = "too many open files" if text == "ok" else text
        return None

    def cancel(self) -> None:
        """Stop waiting; a lease that arrived and was not taken is released."""
        self._end()

    def _end(self) -> None:
        if self._link is None:
            return
        self._link.close()  # also closes descriptors in transit
        self._link = None
        try:
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            os.waitid(os.P_PIDFD, self._handle, os.WEXITED)
        except (ProcessLookupError, ChildProcessError):
            pass  # already reaped elsewhere in this process
        os.close(self._handle)


def _spawn_helper(words: list[str], link: int) -> tuple[int, int]:
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", "-m", "stoker.engine.devices.leases.wait_process", *words],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, link, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        ],
        setsid=True,  # Ctrl-C must reach only the parent
        setsigmask=(),
        setsigdef=[signal.SIGTERM, signal.SIGHUP],
    )
    try:
        # A pidfd, because code that reaps all children makes the PID available for reuse.
        return pid, os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def _receive(link: socket.socket, count: int) -> tuple[bytes, list[int]]:
    """Receive descriptors with close-on-exec, which socket.recv_fds does not support."""
    from socket import CMSG_SPACE, MSG_CMSG_CLOEXEC, MSG_DONTWAIT

    word, messages, _, _ = link.recvmsg(
        4096, CMSG_SPACE(count * _INT.size), MSG_DONTWAIT | MSG_CMSG_CLOEXEC
    )
    return word, [number for _, _, data in messages for (number,) in _INT.iter_unpack(data)]


# -- taking --------------------------------------------------------------------------------------


def _take(
    claims: Sequence[DeviceClaim], unleased: Mapping[str, int], pid: int, is_patient: bool
) -> list[int] | None:
    _check(claims)
    now = 0 if is_patient else fcntl.LOCK_NB
    order = sorted(range(len(claims)), key=lambda index: (claims[index].pci, claims[index].uuid))
    paths = [paths_of(claim.uuid, claim.pci, claim.is_slice) for claim in claims]
    gates: list[int] = []
    locks: dict[int, int] = {}
    try:
        for index in order:
            gate = lock(paths[index][1], fcntl.LOCK_EX | now)
            if gate is None:
                return None
            gates.append(gate)
            if is_patient:
                sign(gate, 0, claims[index].amount, pid)
        for index in order:
            claim = claims[index]
            how = fcntl.LOCK_EX if claim.amount is None else fcntl.LOCK_SH
            descriptor = lock(paths[index][0], how | now)
            if descriptor is None:
                return None
            locks[index] = descriptor
            pause, longest = _POLL_SECONDS
            while not place(descriptor, claim, unleased.get(claim.uuid, 0), pid):
                if not is_patient:
                    return None
                # There is no lock to wait for free memory, so poll. This process holds the gate,
                # so free memory can only grow.
                time.sleep(pause)
                pause = min(2 * pause, longest)
        return [locks.pop(index) for index in range(len(claims))]
    except OSError as error:
        raise lease_error(error) from None
    finally:
        for descriptor in (*gates, *locks.values()):
            os.close(descriptor)


def _check(claims: Sequence[DeviceClaim]) -> None:
    if len({claim.uuid for claim in claims}) < len(claims):
        raise ValueError("a GPU is claimed twice, which would deadlock")
    for claim in claims:
        if claim.amount is not None and not 0 <= claim.amount < WHOLE - 1:
            raise ValueError(f"no GPU has {claim.amount} bytes")
