"""Leases that several jobs of one command profile share while their memory is being measured.

The first job takes the whole GPU (or its slot). Its followers get copies of the same descriptors,
and this process keeps one too, so that the amount can follow the claims of the jobs afterwards. If
this process dies, its copy is closed and the amount stays as it is until the last job ends.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from stoker.core.model import Request, RunningJob
from stoker.core.policy.placement import is_measured
from stoker.devices.leases.holders import DeviceClaim
from stoker.devices.leases.lease import Lease, first_waiters
from stoker.devices.leases.resize import resize
from stoker.errors import Error


class _Group:
    __slots__ = ("amount", "claim", "descriptor", "members")

    def __init__(self, claim: DeviceClaim | None, descriptor: int | None) -> None:
        self.claim = claim  # None: these GPUs are not leased
        self.descriptor = descriptor
        self.amount: int | None = None  # None: still the whole GPU or slot
        self.members: set[int] = set()  # attempts, once their memory is known


class GroupLeases:
    def __init__(self) -> None:
        self._groups: dict[tuple[int, int], _Group] = {}  # by device and profile

    def join(self, request: Request, device: int) -> Lease | None:
        """Return a copy of the lease of the jobs that a follower joins; None if it cannot join.

        No job joins while another process waits for the GPU: that would prolong its wait.
        """
        group = self._groups.get((device, request.profile)) if is_measured(request) else None
        if group is None or group.amount is not None:
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
        self._drop((device, request.profile))
        if lease.descriptors and claims:
            group = _Group(claims[0], os.dup(lease.descriptors[0]))
        else:
            group = _Group(None, None)
        self._groups[device, request.profile] = group

    def has(self, device: int, profile: int) -> bool:
        """Whether followers of this profile can join on the device."""
        group = self._groups.get((device, profile))
        return group is not None and group.amount is None

    def resolve(self, device: int, profile: int, claims: Mapping[int, int]) -> bool:
        """Shrink the lease to the claims of its jobs, by attempt; False if that is not possible."""
        group = self._groups.get((device, profile))
        if group is None or not self._resize(group, sum(claims.values())):
            return False
        group.members = set(claims)
        return True

    def follow(self, live: Mapping[int, RunningJob]) -> None:
        """Adjust each lease to the claims of the jobs that are left."""
        measured = {
            (job.devices[0], job.request.profile)
            for job in live.values()
            if job.devices and is_measured(job.request)
        }
        for key, group in list(self._groups.items()):
            if group.amount is None:
                if key not in measured:
                    self._drop(key)
                continue
            claims = [live[one].request.memory or 0 for one in group.members if one in live]
            if not claims:
                self._drop(key)
            elif sum(claims) != group.amount:
                self._resize(group, sum(claims))

    def _resize(self, group: _Group, amount: int) -> bool:
        if group.claim is not None and group.descriptor is not None:
            # An estimate with its margin may exceed the GPU.
            amount = min(amount, group.claim.total)
            try:
                if not resize(group.descriptor, group.claim._replace(amount=amount)):
                    return False
            except Error:
                return False  # e.g. no free descriptor; the next sample tries again
        group.amount = amount
        return True

    def _drop(self, key: tuple[int, int]) -> None:
        group = self._groups.pop(key, None)
        if group is not None and group.descriptor is not None:
            os.close(group.descriptor)

    def close(self) -> None:
        for key in list(self._groups):
            self._drop(key)
