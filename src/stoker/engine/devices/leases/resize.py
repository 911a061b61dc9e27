"""Changes the amount of a lease while its jobs run.

The locks belong to an open file description, so any process that has a copy of the descriptor can
change them for all. A whole GPU is an exclusive lock, a part of it a shared one. The kernel does
not promise that the change from one to the other is atomic: a process that waits for the whole GPU
could get in between. Such a process holds the gate, so the change is made only while this process
holds the gate, or while the process that holds it waits for a part of the GPU.
"""

from __future__ import annotations

import fcntl
import os

from stoker.engine.devices.leases.holders import (
    SLOT_BITS,
    DeviceClaim,
    amounts_on,
    lock_range,
    read_holders,
)
from stoker.engine.devices.leases.lease_files import lease_error, lock, open_existing, paths_of
from stoker.text.flock import FLOCK


def resize(descriptor: int, claim: DeviceClaim) -> bool:
    """Set the amount of a lease to `claim.amount`, which is not None.

    Returns False if another process waits for the whole GPU: it has to get the GPU first, so the
    lease stays as it is, and the caller tries again later. Raises Error if the lease cannot be
    changed. A larger amount is recorded even if others hold too much: it is in use already.
    """
    assert claim.amount is not None
    path, gate_path = paths_of(claim.uuid, claim.pci, claim.is_slice)
    gate = None
    try:
        slot, before = _own_record(descriptor, path)
        if before is None:
            gate = lock(gate_path, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if gate is None and not _waits_for_a_part(claim.uuid, gate_path):
                return False
        _set_amount(descriptor, slot, claim.amount, before)
        if before is None:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        raise lease_error(error) from None
    finally:
        if gate is not None:
            os.close(gate)
    return True


def _own_record(descriptor: int, path: str) -> tuple[int, int | None]:
    """Return slot and amount of the lease with this descriptor.

    A query shows only the locks of other open file descriptions, so the own record is the one that
    a new descriptor sees and this one does not.
    """
    fresh = open_existing(path)
    try:
        everything = amounts_on(fresh)
    finally:
        os.close(fresh)
    others = amounts_on(descriptor)
    for slot, amount in everything.items():
        if slot not in others:
            return slot, amount
    raise OSError(f"the lease has no record in `{path}`")


def _waits_for_a_part(uuid: str, gate_path: str) -> bool:
    waiting = list(read_holders(uuid, gate_path))
    return bool(waiting) and all(one.amount is not None for one in waiting)


def _set_amount(descriptor: int, slot: int, amount: int, before: int | None) -> None:
    start, size = slot << SLOT_BITS, amount + 1
    if before is not None and amount >= before:
        lock_range(descriptor, start, size)
        return
    rest = FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, start + size, (1 << SLOT_BITS) - size, 0)
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, rest)
