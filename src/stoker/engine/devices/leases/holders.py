"""The holders of a GPU and their shares, encoded in the positions of read locks (F_OFD_SETLK).

A holder uses the lowest free slot of 256 and locks two ranges:

    slot << 44                                  amount + 1 bytes; 2^44 for the whole GPU
    1 << 62 | slot << 54 | uid << 22 | pid      one byte

Read locks never conflict; they only carry information. F_OFD_GETLK reads them: it returns a lock
that would conflict with a write lock, and needs no write permission. /proc/locks shows the same
locks but is not reliable: it is read in pieces, and a lock released between two reads shifts the
rest, so that a line can be missed.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator

from stoker.engine.devices.leases.lease_files import lease_error, open_existing
from stoker.record import Record
from stoker.text.flock import FLOCK

_SLOTS = 256
SLOT_BITS = 44
WHOLE = 1 << SLOT_BITS
_WHO = 1 << 62
_SLOT_SHIFT, _UID_SHIFT = 54, 22


class DeviceClaim(Record):
    """The claim of a job on one GPU, in bytes; `amount` None is the whole GPU."""

    uuid: str
    pci: str  # as in sysfs: 0000:65:00.0; empty if unknown
    is_slice: bool
    total: int
    amount: int | None


class Holder(Record):
    """The holder of a lease on one GPU; `amount` None is the whole GPU."""

    uuid: str
    uid: int
    pid: int
    amount: int | None


def place(descriptor: int, claim: DeviceClaim, unleased: int, pid: int) -> bool:
    """Add a record to the lock file if the GPU has room; returns False if not.

    The caller holds the gate. `unleased` is the memory of processes without a lease.
    """
    amounts = amounts_on(descriptor)
    if claim.amount is not None:
        taken = sum(amount or 0 for amount in amounts.values())
        if taken + unleased + claim.amount > claim.total:
            return False
    for slot in range(_SLOTS):
        if slot not in amounts:
            sign(descriptor, slot, claim.amount, pid)
            return True
    return False


def sign(descriptor: int, slot: int, amount: int | None, pid: int) -> None:
    """Lock the ranges of a holder."""
    # The amount first, because `read_holders` reads it last.
    lock_range(descriptor, slot << SLOT_BITS, WHOLE if amount is None else amount + 1)
    lock_range(descriptor, _WHO | slot << _SLOT_SHIFT | os.getuid() << _UID_SHIFT | pid, 1)


def read_holders(uuid: str, path: str) -> Iterator[Holder]:
    try:
        descriptor = open_existing(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise lease_error(error) from None
    try:
        names = [start - _WHO for start, _ in _locked(descriptor, _WHO, _WHO << 1)]
        amounts = amounts_on(descriptor) if names else {}
    finally:
        os.close(descriptor)
    for name in names:
        slot, who = name >> _SLOT_SHIFT, name & (1 << _SLOT_SHIFT) - 1
        if slot in amounts:  # otherwise the lease was just released
            yield Holder(uuid, who >> _UID_SHIFT, who & (1 << _UID_SHIFT) - 1, amounts[slot])


def amounts_on(descriptor: int) -> dict[int, int | None]:
    """Return the amounts that other processes hold, by slot."""
    return {
        start >> SLOT_BITS: None if length == WHOLE else length - 1
        for start, length in _locked(descriptor, 0, _SLOTS << SLOT_BITS)
    }


def lock_range(descriptor: int, start: int, length: int) -> None:
    request = FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, start, length, 0)
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)


def _locked(descriptor: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield start and length of each range that other processes locked; none may overlap."""
    ranges = [(start, end)]
    while ranges:
        start, end = ranges.pop()
        query = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, end - start, 0)
        kind, _, found, length, _ = FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, query))
        if kind == fcntl.F_UNLCK:
            continue
        after = found + length if length else _WHO << 1  # 0: up to the largest offset
        yield found, after - found
        # The kernel returns any conflicting lock, not necessarily the first.
        if start < found:
            ranges.append((start, found))
        if after < end:
            ranges.append((after, end))
