"""Who outside of this queue needs the GPUs of preemptible jobs: lease waiters, other processes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from stoker.engine.daemon.gpus.process_owners import user_name
from stoker.engine.devices.leases.lease import first_waiters
from stoker.engine.gpus.occupancy import Occupancy
from stoker.engine.model import Device, RunningJob
from stoker.engine.policy.preemption import OutsideDemand
from stoker.errors import Error

# A process that finds a free GPU holds its gate only for a moment.
_WAITS_AFTER_SECONDS = 0.4


class OutsideDemands:
    """The demands as of the last sample."""

    def __init__(self, use_leases: bool) -> None:
        self._use_leases = use_leases
        self._waiting_since: dict[tuple[int, int], float] = {}  # by user id and PID
        self.found: list[OutsideDemand] = []

    def update(
        self,
        devices: Iterable[Device],
        occupancy: Mapping[int, Occupancy],
        live: Iterable[RunningJob],
        at: float,
    ) -> bool:
        """Look at the GPUs of preemptible jobs; True if the scheduler has to decide again."""
        before = self.found
        numbers = {n for job in live if job.request.preemptible for n in job.devices}
        used = [device for device in devices if device.number in numbers]
        waiters = self._waiters(used, at) if self._use_leases and used else []
        if not waiters and not used:
            self._waiting_since.clear()
        self.found = [*waiters, *_users(used, occupancy)]
        return bool(waiters) or self.found != before

    def _waiters(self, devices: list[Device], at: float) -> list[OutsideDemand]:
        """The processes that wait for the lease of a GPU, and for how much of it."""
        amounts: dict[tuple[int, int], dict[int, int | None]] = {}
        for device in devices:
            try:
                waiting = first_waiters([(device.uuid, device.pci, device.slice_of is not None)])
            except Error:
                continue  # the lease folder is not usable, which the next start reports
            for one in waiting:
                if one.pid != os.getpid():
                    amounts.setdefault((one.uid, one.pid), {})[device.number] = one.amount
        self._waiting_since = {who: self._waiting_since.get(who, at) for who in amounts}
        return [
            OutsideDemand(f"{user_name(uid)} (pid {pid})", by_device)
            for (uid, pid), by_device in amounts.items()
            if at - self._waiting_since[uid, pid] >= _WAITS_AFTER_SECONDS
        ]


def _users(devices: list[Device], occupancy: Mapping[int, Occupancy]) -> list[OutsideDemand]:
    """Processes that compute on a GPU without a lease."""
    return [
        OutsideDemand(f"another process ({note})", {device.number: None}, is_using=True)
        for device in devices
        if (seen := occupancy.get(device.number)) is not None
        and seen.has_other_processes
        and (note := seen.note) is not None
    ]
