"""Who holds how much of a card: written in the places of read locks (F_OFD_SETLK).

A holder has the lowest free slot of 256, and locks two ranges:

    slot << 44                                  amount + 1 bytes; 2^44 for the whole card
    1 << 62 | slot << 54 | uid << 22 | pid      one byte

Read locks never conflict; they are there to be read, with F_OFD_GETLK, which names a lock that
would be in the way of a write lock and asks for no right to write. /proc/locks shows the same
locks, but is not used: it is read in pieces, and what ends anywhere on the host between two pieces
moves the rest, so that a line can be missed.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator

from stoker.core.record import Record
from stoker.devices.leases.lease_files import explained, open_existing

_SLOTS = 256
_AMOUNT_BITS = 44
WHOLE = 1 << _AMOUNT_BITS
_WHO = 1 << 62
_SLOT_SHIFT, _UID_SHIFT = 54, 22
_FLOCK = struct.Struct("hhqqi4x")  # type, whence, start, length, pid


class DeviceClaim(Record):
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


def place(card: int, claim: DeviceClaim, strangers: int, pid: int) -> bool:
    """Put our record beside the others', if there is room; only with the gate held."""
    amounts = amounts_on(card)
    if claim.amount is not None:
        taken = sum(amount or 0 for amount in amounts.values())
        if taken + strangers + claim.amount > claim.total:
            return False
    for slot in range(_SLOTS):
        if slot not in amounts:
            sign(card, slot, claim.amount, pid)
            return True
    return False


def sign(descriptor: int, slot: int, amount: int | None, pid: int) -> None:
    # The amount before the name, because `read_holders` looks for them the other way round.
    _lock_range(descriptor, slot << _AMOUNT_BITS, WHOLE if amount is None else amount + 1)
    _lock_range(descriptor, _WHO | slot << _SLOT_SHIFT | os.getuid() << _UID_SHIFT | pid, 1)


def read_holders(uuid: str, path: str) -> Iterator[Holder]:
    try:
        descriptor = open_existing(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise explained(error) from None
    try:
        names = [start - _WHO for start, _ in _locked(descriptor, _WHO, _WHO << 1)]
        amounts = amounts_on(descriptor) if names else {}
    finally:
        os.close(descriptor)
    for name in names:
        slot, who = name >> _SLOT_SHIFT, name & (1 << _SLOT_SHIFT) - 1
        if slot in amounts:  # else it left just now
            yield Holder(uuid, who >> _UID_SHIFT, who & (1 << _UID_SHIFT) - 1, amounts[slot])


def amounts_on(descriptor: int) -> dict[int, int | None]:
    """What others hold, by slot."""
    return {
        start >> _AMOUNT_BITS: None if length == WHOLE else length - 1
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
