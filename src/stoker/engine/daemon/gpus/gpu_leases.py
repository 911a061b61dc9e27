"""The leases that jobs take on the GPUs of one loop, and the wait for GPUs that others hold."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping

from stoker.engine.daemon.gpus.group_leases import GroupLeases
from stoker.engine.daemon.gpus.process_owners import user_name
from stoker.engine.devices.leases.holders import DeviceClaim
from stoker.engine.devices.leases.lease import Lease, Waiter, first_waiters, holders, try_take
from stoker.engine.gpus.measured_group import LEAST_PART
from stoker.engine.model import Device, Request
from stoker.engine.policy.placement import amount_of, capacity, is_measured
from stoker.errors import Error

# How long a lease that the waiter got is kept for the job that needs it: the last holder may still
# be freeing its memory.
_KEEP_SECONDS = 5.0


class GpuLeases:
    def __init__(self, is_used: bool, inherited_uuids: Iterable[str]) -> None:
        self.groups = GroupLeases()
        self.problem: str | None = None  # why the last lease failed
        self.refusals: dict[int, str] = {}  # by device, since the last sample
        self.waiter: Waiter | None = None  # waits for the lease of a GPU that another process holds
        self.was_requested = False  # since the last call of `drop_unused`
        self._is_used = is_used
        self._inherited_uuids = frozenset(inherited_uuids)  # leased by an enclosing job already
        self._wanted: list[DeviceClaim] = []  # what the waiter waits for
        # The lease that the waiter got, until a job uses it.
        self._waited_lease: tuple[list[DeviceClaim], Lease] | None = None
        self._waited_lease_until = 0.0
        self._has_new_sample = False

    @property
    def has_waited_lease(self) -> bool:
        return self._waited_lease is not None

    def new_sample(self, at: float) -> None:
        """Let jobs try again: other processes may have released their leases."""
        self.refusals.clear()
        self._has_new_sample = True
        if at > self._waited_lease_until:
            self._release_waited_lease()

    def take(
        self, request: Request, devices: list[Device], unleased: Mapping[str, int]
    ) -> Lease | None:
        """Lease devices for a job; None: `refusals` says why.

        `unleased`: the memory of other processes without a lease, by UUID.
        """
        number = devices[0].number
        joined = self.groups.join(request, number)
        if joined is not None:
            return joined
        claims = self._claims(request, devices, unleased) if self._is_used else []
        lease: Lease | None = Lease([])
        if claims:
            lease = self._take(claims, devices, unleased, waits=not request.preemptible)
        if lease is not None:
            self.groups.keep(request, number, claims, lease)
        return lease

    def _take(
        self,
        claims: list[DeviceClaim],
        devices: list[Device],
        unleased: Mapping[str, int],
        *,
        waits: bool,
    ) -> Lease | None:
        if self._waited_lease is not None:
            wanted, waited_lease = self._waited_lease
            if wanted == claims:
                self._waited_lease = None
                return waited_lease
            if {one.uuid for one in wanted} & {one.uuid for one in claims}:
                self._release_waited_lease()  # our own lease would block the new one
        try:
            lease = try_take(claims, unleased)
            if lease is None:
                self._refuse(devices, "leased to another process")
                # Preemptible jobs take a lease only if no other process needs the GPU.
                if self.waiter is None and waits:
                    self.waiter = Waiter(claims)
                    self._wanted = claims
        except Error as error:  # e.g. an unsafe lease folder, or no memory
            self.problem = error.message
            self._refuse(_unleasable(devices), f"cannot be leased: {error.message}")
            return None
        self.problem = None
        return lease

    def _refuse(self, devices: list[Device], why: str) -> None:
        self.refusals.update((device.number, why) for device in devices)

    def _claims(
        self, request: Request, devices: list[Device], unleased: Mapping[str, int]
    ) -> list[DeviceClaim]:
        claims = []
        for device in devices:
            if device.uuid in self._inherited_uuids:
                continue
            amount = amount_of(request, device)
            if is_measured(request):
                amount = self._left_for(device, amount, unleased[device.uuid])
            whole = amount >= capacity(device)
            claims.append(DeviceClaim(*_place(device), capacity(device), None if whole else amount))
        return claims

    def _left_for(self, device: Device, slot: int, unleased: int) -> int:
        """The part of a slot that other leases leave for a job that is being measured.

        If they leave too little, it is the least with which the job starts: a lease on more would
        also wait for our own jobs on the device.
        """
        try:
            held = holders([_place(device)])
        except Error:
            return slot  # taking the lease will fail, too
        if not held or any(one.amount is None for one in held):
            return slot
        waited = self._waited_lease[0] if self._waited_lease is not None else []
        taken = sum(one.amount or 0 for one in held) - sum(
            one.amount or 0 for one in waited if one.uuid == device.uuid
        )
        left = min(slot, capacity(device) - taken - unleased)
        return max(left, int(slot * LEAST_PART))

    def other_user(self, device: Device) -> str | None:
        """Another user who holds a lease of the device; None if there is none."""
        if not self._is_used:
            return None
        try:
            held = holders([_place(device)])
        except Error:
            return None
        own = os.getuid()
        return next((user_name(one.uid) for one in held if one.uid != own), None)

    def drop_unused(self, is_open: Callable[[set[str]], bool]) -> None:
        """After a decision: stop waiting for a lease that no job needs any more."""
        if self._has_new_sample and not self.was_requested:
            if self.waiter is not None:
                self.waiter.cancel()  # no job needs it, and other processes may wait behind us
                self.waiter = None
            if self._waited_lease is not None and is_open({c.uuid for c in self._waited_lease[0]}):
                self._release_waited_lease()
        self.was_requested = self._has_new_sample = False

    def take_waited(self) -> bool:
        """Take the lease that the waiter got; True if the wait has ended, with a lease or not."""
        if self.waiter is None:
            return False
        lease = self.waiter.take()
        if lease is None and not self.waiter.is_dead:
            return False
        self.waiter = None
        if lease is not None:
            self._release_waited_lease()
            self._waited_lease = (self._wanted, lease)
            self._waited_lease_until = time.monotonic() + _KEEP_SECONDS
        self.refusals.clear()
        return True

    def _release_waited_lease(self) -> None:
        """Release a lease that the waiter got and no job used."""
        if self._waited_lease is not None:
            self._waited_lease[1].close()
            self._waited_lease = None

    def close(self) -> None:
        if self.waiter is not None:
            self.waiter.cancel()
        self._release_waited_lease()
        self.groups.close()


def _unleasable(devices: list[Device]) -> list[Device]:
    """The devices whose lease failed; all of them if that cannot be determined."""
    failed = []
    for device in devices:
        try:
            holders([_place(device)])
            first_waiters([_place(device)])
        except Error:
            failed.append(device)
    return failed or devices


def _place(device: Device) -> tuple[str, str, bool]:
    return device.uuid, device.pci, device.slice_of is not None
