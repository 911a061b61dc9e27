"""Leases: rights to GPUs that hold between all users, daemons and foreground runs of a host.

Nobody needs root and nothing has to be cleaned up: a lease is a set of kernel locks on one open
file description per card. Whoever inherits the descriptor keeps the locks; when the last holder
closes it or dies, they are gone.

**The files.** A card's lock file is `vendor` in its sysfs folder, and its gate is `device` beside
it: they belong to root and can be neither planted nor removed. Cards without such a folder and MIG
slices (which share the folder of their card) have `<uuid>` and `<uuid>.gate` in a folder that all
users can write to: $STOKER_LEASE_DIR, or /run/lock/stoker-leases, or /tmp/stoker-leases where
/run/lock is not open to all. All are opened for reading only and nothing is ever written to them.

**The locks.** The gate first (flock, exclusive), then the lock file (flock: exclusive for the whole
card, shared for a part of it), then the record; then the gate is let go. The gate makes a queue:
who waits for sharers to leave holds the gate meanwhile, and no new sharer can pass. For several
cards all gates come before all cards, both in PCI order, so two of them cannot wait for each other.

**The record** says who holds how much, in the places of read locks (F_OFD_SETLK). A holder has the
lowest free slot of 256, and locks two ranges:

    slot << 44                                  amount + 1 bytes; 2^44 for the whole card
    1 << 62 | slot << 54 | uid << 22 | pid      one byte

Read locks never conflict; they are there to be read, with F_OFD_GETLK, which names a lock that
would be in the way of a write lock and asks for no right to write. /proc/locks shows the same
locks, but is not used: it is read in pieces, and what ends anywhere on the host between two pieces
moves the rest, so that a line can be missed.

**Limits.** Leases bind those who ask for them: anybody can use a card without one, keep a gate, or
unlock what he inherited. A container with its own network namespace has its own sysfs, whose locks
the host does not see; one with its own PID or user namespace is named by its own numbers. In the
fallback folder, the owner of a file or of the folder can remove what others hold; the next to come
makes a new file and knows nothing of the old one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import struct
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

from stoker.core.record import Record
from stoker.errors import Error, Impossible, NoPermission, TryLater
from stoker.settings import Settings, check_filesystem

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

_SYSFS = "/sys/bus/pci/devices"
_OPEN_TO_ALL = 0o1777
# O_NONBLOCK: a planted FIFO must not hang us.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_REPLACED_LIMIT = 100
_LOOK_AGAIN_SECONDS = (0.001, 0.05)  # at first, and at most

_SLOTS = 256
_AMOUNT_BITS = 44
_WHOLE = 1 << _AMOUNT_BITS
_WHO = 1 << 62
_SLOT_SHIFT, _UID_SHIFT = 54, 22
_FLOCK = struct.Struct("hhqqi4x")  # type, whence, start, length, pid
_INT = struct.Struct("i")

_HOST_TROUBLE = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOLCK)


class CardClaim(Record):
    """What a job wants of one card. Bytes; `amount` None is the whole card."""

    uuid: str
    pci: str  # as in sysfs: 0000:65:00.0; empty when there is none
    is_slice: bool
    total: int
    amount: int | None


class Holder(Record):
    """Somebody's lease on one card; `amount` None is the whole card."""

    uuid: str
    uid: int
    pid: int
    amount: int | None


class Lease:
    """Locks on cards, held until every process that has a descriptor of them closed it."""

    __slots__ = ("descriptors",)

    def __init__(self, descriptors: list[int]) -> None:
        self.descriptors = descriptors  # in the order of the claims

    def close(self) -> None:
        """Let go of our part. Unlocking would take the cards from those who inherited them."""
        while self.descriptors:
            os.close(self.descriptors.pop())


def try_take(claims: Sequence[CardClaim], strangers: Mapping[str, int] = {}) -> Lease | None:
    """All of the claims at once, or None; never waits.

    `strangers` says by UUID how many bytes are used by processes that hold no lease.
    """
    held = _take(claims, strangers, os.getpid(), is_patient=False)
    return None if held is None else Lease(held)


def take_patiently(claims: Sequence[CardClaim], pid: int) -> Lease:
    """Wait for all of the claims, in line with everybody else; `pid` is who will hold them."""
    held = _take(claims, {}, pid, is_patient=True)
    assert held is not None
    return Lease(held)


def holders(cards: Sequence[tuple[str, str, bool]]) -> list[Holder]:
    """Who holds the cards (UUID, PCI address, is it a slice); takes no lock."""
    return [holder for card in cards for holder in _read(card[0], _paths(*card)[0])]


def first_in_line(cards: Sequence[tuple[str, str, bool]]) -> list[Holder]:
    """Who waits at the gates of the cards, ahead of everybody else; takes no lock."""
    return [holder for card in cards for holder in _read(card[0], _paths(*card)[1])]


class Waiter:
    """Waits in line for a lease, in a process of its own because the wait cannot be polled.

    The helper ends when this process does. It is this process's child: a parent that reaps all
    its children finds `pid` among them.
    """

    def __init__(self, claims: Sequence[CardClaim]) -> None:
        import json
        import socket

        _check(claims)
        for claim in claims:
            if claim.amount is not None and claim.amount > claim.total:
                raise Impossible(f"{claim.amount} bytes are more than the {claim.total} of a card")
        self.is_dead = False  # ended without a lease
        self.trouble: str | None = None  # why it is dead, when it could say
        self._count = len(claims)
        words = [str(os.getpid()), json.dumps([tuple(claim) for claim in claims])]
        try:
            here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with there:
                try:
                    self.pid, self._handle = _spawn_helper(words, there.fileno())
                except OSError:
                    here.close()
                    raise
        except OSError as error:
            raise _explained(error) from None
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
        [sys.executable, "-P", "-m", "stoker.devices.lease_waiter", *words],
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
    claims: Sequence[CardClaim], strangers: Mapping[str, int], pid: int, is_patient: bool
) -> list[int] | None:
    _check(claims)
    now = 0 if is_patient else fcntl.LOCK_NB
    order = sorted(range(len(claims)), key=lambda index: (claims[index].pci, claims[index].uuid))
    paths = [_paths(claim.uuid, claim.pci, claim.is_slice) for claim in claims]
    gates: list[int] = []
    cards: dict[int, int] = {}
    try:
        for index in order:
            gate = _lock(paths[index][1], fcntl.LOCK_EX | now)
            if gate is None:
                return None
            gates.append(gate)
            if is_patient:
                _sign(gate, 0, claims[index].amount, pid)
        for index in order:
            claim = claims[index]
            how = fcntl.LOCK_EX if claim.amount is None else fcntl.LOCK_SH
            card = _lock(paths[index][0], how | now)
            if card is None:
                return None
            cards[index] = card
            pause, longest = _LOOK_AGAIN_SECONDS
            while not _place(card, claim, strangers.get(claim.uuid, 0), pid):
                if not is_patient:
                    return None
                # No lock that could be waited for stands for missing memory. The gate is ours, so
                # that what is free can only grow.
                time.sleep(pause)
                pause = min(2 * pause, longest)
        return [cards.pop(index) for index in range(len(claims))]
    except OSError as error:
        raise _explained(error) from None
    finally:
        for descriptor in (*gates, *cards.values()):
            os.close(descriptor)


def _check(claims: Sequence[CardClaim]) -> None:
    if len({claim.uuid for claim in claims}) < len(claims):
        raise ValueError("a card is claimed twice, and would wait for itself")
    for claim in claims:
        if claim.amount is not None and not 0 <= claim.amount < _WHOLE - 1:
            raise ValueError(f"no card has {claim.amount} bytes")


def _place(card: int, claim: CardClaim, strangers: int, pid: int) -> bool:
    """Put our record beside the others', if there is room; only with the gate held."""
    amounts = _amounts(card)
    if claim.amount is not None:
        taken = sum(amount or 0 for amount in amounts.values())
        if taken + strangers + claim.amount > claim.total:
            return False
    for slot in range(_SLOTS):
        if slot not in amounts:
            _sign(card, slot, claim.amount, pid)
            return True
    return False


# -- records -------------------------------------------------------------------------------------


def _sign(descriptor: int, slot: int, amount: int | None, pid: int) -> None:
    # The amount before the name, because `_read` looks for them the other way round.
    _lock_range(descriptor, slot << _AMOUNT_BITS, _WHOLE if amount is None else amount + 1)
    _lock_range(descriptor, _WHO | slot << _SLOT_SHIFT | os.getuid() << _UID_SHIFT | pid, 1)


def _read(uuid: str, path: str) -> Iterator[Holder]:
    try:
        descriptor = _open(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _explained(error) from None
    try:
        names = [start - _WHO for start, _ in _locked(descriptor, _WHO, _WHO << 1)]
        amounts = _amounts(descriptor) if names else {}
    finally:
        os.close(descriptor)
    for name in names:
        slot, who = name >> _SLOT_SHIFT, name & (1 << _SLOT_SHIFT) - 1
        if slot in amounts:  # else it left just now
            yield Holder(uuid, who >> _UID_SHIFT, who & (1 << _UID_SHIFT) - 1, amounts[slot])


def _amounts(descriptor: int) -> dict[int, int | None]:
    """What others hold, by slot."""
    return {
        start >> _AMOUNT_BITS: None if length == _WHOLE else length - 1
        for start, length in _locked(descriptor, 0, _SLOTS << _AMOUNT_BITS)
    }


def _lock_range(descriptor: int, start: int, length: int) -> None:
    order = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, start, length, 0)
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, order)


def _locked(descriptor: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Start and length of each range that others have locked; they must not overlap."""
    ask = [(start, end)]
    while ask:
        start, end = ask.pop()
        question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, end - start, 0)
        kind, _, found, length, _ = _FLOCK.unpack(
            fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, question)
        )
        if kind == fcntl.F_UNLCK:
            continue
        after = found + length if length else _WHO << 1  # 0: up to the last byte there can be
        yield found, after - found
        # The kernel names any one of them, not the first.
        if start < found:
            ask.append((start, found))
        if after < end:
            ask.append((after, end))


# -- files ---------------------------------------------------------------------------------------


def _lock(path: str, how: int) -> int | None:
    """A descriptor with the lock; None when LOCK_NB is set and somebody is in the way."""
    for _ in range(_REPLACED_LIMIT):
        descriptor = _open_or_make(path)
        try:
            fcntl.flock(descriptor, how)
            # While we waited, the file may have been removed: then newcomers lock another one.
            if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise TryLater(f"somebody keeps replacing the lease file `{path}`")


def _open_or_make(path: str) -> int:
    while True:
        try:
            return _open(path)  # first, because making one fails if it belongs to another user
        except FileNotFoundError:
            if path.startswith(_SYSFS):
                raise
        mask = os.umask(0)  # readable for all, whatever ours is, from its first moment
        try:
            os.close(os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o444))
        except FileExistsError:
            pass
        finally:
            os.umask(mask)


def _open(path: str) -> int:
    """Open a lock file that is one; what somebody planted in its place is not touched."""
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _planted(path, "a symbolic link") from None
        raise
    info = os.fstat(descriptor)
    if stat.S_ISREG(info.st_mode) and info.st_nlink <= 1:
        return descriptor
    os.close(descriptor)
    raise _planted(path, "a hard link" if stat.S_ISREG(info.st_mode) else "not a file")


def _planted(path: str, what: str) -> NoPermission:
    return NoPermission(f"the lease file `{path}` is {what}", f"ask its owner to remove it: {path}")


def _explained(error: OSError) -> Error:
    if error.errno in _HOST_TROUBLE:
        return TryLater(f"cannot take a lease: {error.strerror}")
    where = f" with `{error.filename}`" if error.filename else ""
    return NoPermission(
        f"cannot take a lease{where}: {error.strerror}",
        "set STOKER_LEASE_DIR to a folder that all users of this host can write to",
    )


def _paths(uuid: str, pci: str, is_slice: bool) -> tuple[str, str]:
    """The lock file and the gate of a card."""
    if pci and not is_slice:
        vendor = f"{_SYSFS}/{pci}/vendor"
        if os.path.exists(vendor):
            return vendor, f"{_SYSFS}/{pci}/device"
    # Old drivers name a slice MIG-GPU-<uuid>/<instance>/<instance>.
    path = f"{lease_folder()}/{uuid.replace('/', '_')}"
    return path, f"{path}.gate"


def lease_folder() -> str:
    """A folder for lock files that all users of this host share; NoPermission if it is not safe."""
    folder = os.environ.get("STOKER_LEASE_DIR") or _default_folder()
    try:
        info = os.lstat(folder)
    except FileNotFoundError:
        _make_folder(folder)
        info = os.lstat(folder)
    if not stat.S_ISDIR(info.st_mode):
        raise NoPermission(f"the lease folder `{folder}` is not a folder")
    if info.st_mode & 0o022 and not info.st_mode & stat.S_ISVTX:
        raise NoPermission(
            f"in the lease folder `{folder}` users can remove each other's files",
            f"chmod 1777 {folder}",
        )
    _refuse_network(folder, info.st_dev)
    return folder


def _default_folder() -> str:
    # By a property of the host that is the same for every user, whoever comes first.
    try:
        is_open = os.stat("/run/lock").st_mode & _OPEN_TO_ALL == _OPEN_TO_ALL
    except OSError:
        is_open = False
    return f"{'/run/lock' if is_open else '/tmp'}/stoker-leases"


def _make_folder(folder: str) -> None:
    mask = os.umask(0)
    try:
        os.mkdir(folder, _OPEN_TO_ALL)
    except FileExistsError:
        pass
    except OSError as error:
        raise NoPermission(
            f"cannot make the lease folder `{folder}`: {error.strerror}",
            "set STOKER_LEASE_DIR to a folder that all users of this host can write to",
        ) from None
    finally:
        os.umask(mask)


_local_filesystems: set[int] = set()


def _refuse_network(folder: str, filesystem: int) -> None:
    """Over NFS a flock is a range lock: it would not be inherited, and would mix with ours."""
    if filesystem in _local_filesystems:
        return
    try:
        check_filesystem(Settings(state_dir=folder))
    except NoPermission:
        raise NoPermission(
            f"the lease folder `{folder}` is on a network file system",
            "set STOKER_LEASE_DIR to a folder on a local disk, the same for all users",
        ) from None
    _local_filesystems.add(filesystem)
