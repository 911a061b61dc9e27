"""Leases: rights to GPUs that hold between all users, daemons and foreground runs of a host.

Nobody needs root and nothing has to be cleaned up: a lease is a set of kernel locks on one open
file description per card. Whoever inherits the descriptor keeps the locks; when the last holder
closes it or dies, they are gone. lease_files.py says which files, lease_records.py how it is
written down who holds how much.

**The locks.** The gate first (flock, exclusive), then the lock file (flock: exclusive for the whole
card, shared for a part of it), then the record; then the gate is let go. The gate makes a queue:
who waits for sharers to leave holds the gate meanwhile, and no new sharer can pass. For several
cards all gates come before all cards, both in PCI order, so two of them cannot wait for each other.

**Limits.** Leases bind those who ask for them: anybody can use a card without one, keep a gate, or
unlock what he inherited. A container with its own network namespace has its own sysfs, whose locks
the host does not see; one with its own PID or user namespace is named by its own numbers. In the
fallback folder, the owner of a file or of the folder can remove what others hold; the next to come
makes a new file and knows nothing of the old one.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import sys
import time
from collections.abc import Mapping, Sequence

from stoker.devices.leases.holders import WHOLE, DeviceClaim, Holder, place, read_holders, sign
from stoker.devices.leases.lease_files import explained, lock, paths_of
from stoker.errors import Impossible

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

_LOOK_AGAIN_SECONDS = (0.001, 0.05)  # at first, and at most
_INT = struct.Struct("i")


class Lease:
    """Locks on cards, held until every process that has a descriptor of them closed it."""

    __slots__ = ("descriptors",)

    def __init__(self, descriptors: list[int]) -> None:
        self.descriptors = descriptors  # in the order of the claims

    def close(self) -> None:
        """Let go of our part. Unlocking would take the cards from those who inherited them."""
        while self.descriptors:
            os.close(self.descriptors.pop())


def try_take(claims: Sequence[DeviceClaim], strangers: Mapping[str, int] = {}) -> Lease | None:
    """All of the claims at once, or None; never waits.

    `strangers` says by UUID how many bytes are used by processes that hold no lease.
    """
    held = _take(claims, strangers, os.getpid(), is_patient=False)
    return None if held is None else Lease(held)


def take_patiently(claims: Sequence[DeviceClaim], pid: int) -> Lease:
    """Wait for all of the claims, in line with everybody else; `pid` is who will hold them."""
    held = _take(claims, {}, pid, is_patient=True)
    assert held is not None
    return Lease(held)


def holders(cards: Sequence[tuple[str, str, bool]]) -> list[Holder]:
    """Who holds the cards (UUID, PCI address, is it a slice); takes no lock."""
    return [holder for card in cards for holder in read_holders(card[0], paths_of(*card)[0])]


def first_in_line(cards: Sequence[tuple[str, str, bool]]) -> list[Holder]:
    """Who waits at the gates of the cards, ahead of everybody else; takes no lock."""
    return [holder for card in cards for holder in read_holders(card[0], paths_of(*card)[1])]


class Waiter:
    """Waits in line for a lease, in a process of its own because the wait cannot be polled.

    The helper ends when this process does. It is this process's child: a parent that reaps all
    its children finds `pid` among them.
    """

    def __init__(self, claims: Sequence[DeviceClaim]) -> None:
        import json
        import socket

        _check(claims)
        for claim in claims:
            if claim.amount is not None and claim.amount > claim.total:
                raise Impossible(f"{claim.amount} bytes are more than the {claim.total} of a card")
        self.is_dead = False  # ended without a lease
        self.trouble: str | None = None  # why it is dead, when it could say
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
            raise explained(error) from None
        self._link: socket.socket | None = here

    def fileno(self) -> int:
        """Readable when `take` has something to say; -1 when it is over."""
        return -1 if self._link is None else self._link.fileno()

    def take(self) -> Lease | None:
        """The lease, once; None when it is not there yet, or never will be (`is_dead`)."""
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
            self.trouble = "too many open files" if text == "ok" else text
        return None

    def cancel(self) -> None:
        """Leave the line; a lease that arrived and was not taken is given back."""
        self._end()

    def _end(self) -> None:
        if self._link is None:
            return
        self._link.close()  # and with it descriptors that are under way
        self._link = None
        try:
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            os.waitid(os.P_PIDFD, self._handle, os.WEXITED)
        except (ProcessLookupError, ChildProcessError):
            pass  # somebody else reaped it
        os.close(self._handle)


def _spawn_helper(words: list[str], link: int) -> tuple[int, int]:
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", "-m", "stoker.devices.leases.wait_process", *words],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, link, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        ],
        setsid=True,  # a ^C is for the parent to judge
        setsigmask=(),
        setsigdef=[signal.SIGTERM, signal.SIGHUP],
    )
    try:
        # A handle, because whoever reaps all children makes the number free for others.
        return pid, os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def _receive(link: socket.socket, count: int) -> tuple[bytes, list[int]]:
    """socket.recv_fds heeds no flags, and what it receives would be inherited by every child."""
    from socket import CMSG_SPACE, MSG_CMSG_CLOEXEC, MSG_DONTWAIT

    word, messages, _, _ = link.recvmsg(
        4096, CMSG_SPACE(count * _INT.size), MSG_DONTWAIT | MSG_CMSG_CLOEXEC
    )
    return word, [number for _, _, data in messages for (number,) in _INT.iter_unpack(data)]


# -- taking --------------------------------------------------------------------------------------


def _take(
    claims: Sequence[DeviceClaim], strangers: Mapping[str, int], pid: int, is_patient: bool
) -> list[int] | None:
    _check(claims)
    now = 0 if is_patient else fcntl.LOCK_NB
    order = sorted(range(len(claims)), key=lambda index: (claims[index].pci, claims[index].uuid))
    paths = [paths_of(claim.uuid, claim.pci, claim.is_slice) for claim in claims]
    gates: list[int] = []
    cards: dict[int, int] = {}
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
            card = lock(paths[index][0], how | now)
            if card is None:
                return None
            cards[index] = card
            pause, longest = _LOOK_AGAIN_SECONDS
            while not place(card, claim, strangers.get(claim.uuid, 0), pid):
                if not is_patient:
                    return None
                # No lock that could be waited for stands for missing memory. The gate is ours, so
                # that what is free can only grow.
                time.sleep(pause)
                pause = min(2 * pause, longest)
        return [cards.pop(index) for index in range(len(claims))]
    except OSError as error:
        raise explained(error) from None
    finally:
        for descriptor in (*gates, *cards.values()):
            os.close(descriptor)


def _check(claims: Sequence[DeviceClaim]) -> None:
    if len({claim.uuid for claim in claims}) < len(claims):
        raise ValueError("a card is claimed twice, and would wait for itself")
    for claim in claims:
        if claim.amount is not None and not 0 <= claim.amount < WHOLE - 1:
            raise ValueError(f"no card has {claim.amount} bytes")
