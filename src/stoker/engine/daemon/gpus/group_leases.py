"""Leases that several jobs share while the memory of one of them is being measured.

The first job takes the whole GPU, its slot, or what is free of it. Its followers get copies of the
same descriptors, and this process keeps one too, so that the amount can follow the claims of the
jobs afterwards. If this process dies, its copy is closed and the amount stays as it is until the
last job ends.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from stoker.engine.devices.leases.holders import DeviceClaim
from stoker.engine.devices.leases.lease import Lease, first_waiters
from stoker.engine.devices.leases.resize import resize
from stoker.engine.model import Request, RunningJob
from stoker.engine.policy.placement import is_measured
from stoker.errors import Error


class _Group:
    __slots__ = ("amount", "claim", "descriptor", "members")

    def __init__(self, claim: DeviceClaim | None, descriptor: int | None) -> None:
        self.claim = claim  # None: these GPUs are not leased
        self.descriptor = descriptor
        self.amount: int | None = None  # None: still what the first job took
        self.members: dict[int, int] = {}  # the claims of attempts whose memory is known

    def resize(self, amount: int) -> bool:
        if self.claim is not None and self.descriptor is not None:
            # An estimate with its margin may exceed the GPU.
            amount = min(amount, self.claim.total)
            try:
                if not resize(self.descriptor, self.claim._replace(amount=amount)):
                    return False
            except Error:
                return False  # e.g. no free descriptor; the next sample tries again
        self.amount = amount
        return True

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)


class GroupLeases:
    def __init__(self) -> None:
        self._open: dict[int, _Group] = {}  # by device: groups that are being measured
        self._resolved: list[_Group] = []

    def join(self, request: Request, device: int) -> Lease | None:
        """Return a copy of the lease of the jobs that a follower joins; None if it cannot join.

        No job joins while another process waits for the GPU: that would prolong its wait.
        """
        group = self._open.get(device) if is_measured(request) else None
        if group is None:
            return None
        if group.claim is None or group.descriptor is None:
            return Lease([])
        try:
            place = (group.claim.uuid, group.claim.pci, group.claim.is_slice)
            if first_waiters([place]):
                return None
            return Lease([os.dup(group.descriptor)])
        except (Error, OSError):
            return None

    def keep(self, request: Request, device: int, claims: list[DeviceClaim], lease: Lease) -> None:
        """Keep a copy of the lease of a job that others may follow."""
        if not is_measured(request):
            return
        self._end(device)
        if lease.descriptors and claims:
            group = _Group(claims[0], os.dup(lease.descriptors[0]))
        else:
            group = _Group(None, None)
        self._open[device] = group

    def is_open(self, device: int) -> bool:
        """Whether followers can join on the device."""
        return device in self._open

    def resolve(self, device: int, claims: Mapping[int, int], *, is_last: bool) -> bool:
        """Note the claims of jobs whose memory is known now; False if that is not possible.

        `is_last`: no job of the group is being measured any more, so that the lease shrinks to
        the sum of the claims.
        """
        group = self._open.get(device)
        if group is None:
            return False
        known = {**group.members, **claims}
        if is_last and not group.resize(sum(known.values())):
            return False
        group.members = known
        if is_last:
            self._resolved.append(self._open.pop(device))
        return True

    def follow(self, live: Mapping[int, RunningJob]) -> None:
        """Adjust each lease to the claims of the jobs that are left."""
        measured = {
            job.devices[0] for job in live.values() if job.devices and is_measured(job.request)
        }
        for group in (*self._open.values(), *self._resolved):
            group.members = {
                one: live[one].request.memory or 0 for one in group.members if one in live
            }
        for device in self._open.keys() - measured:
            self._end(device)
        for group in list(self._resolved):
            amount = sum(group.members.values())
            if not group.members:
                self._resolved.remove(group)
                group.close()
            elif amount != group.amount:
                group.resize(amount)

    def _end(self, device: int) -> None:
        """End the measurement on a device, where no job is measured any more."""
        group = self._open.pop(device, None)
        if group is not None:
            self._resolved.append(group)

    def close(self) -> None:
        for group in (*self._open.values(), *self._resolved):
            group.close()
        self._open.clear()
        self._resolved.clear()
