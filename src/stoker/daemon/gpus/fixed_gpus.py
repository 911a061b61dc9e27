"""The devices as the loop sees them: which there are, what is open, what our jobs use of them.

`Cards` are devices that never change (simulated ones, or none); watched_cards.py has those that
follow the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stoker.core.gpus.sample import Sample
from stoker.core.model import Device, DeviceState, Request, RunningJob
from stoker.daemon.gpus.gpu_usage import GpuUse
from stoker.devices.leases.lease import Lease, Waiter


class FixedGpus:
    """Devices that stay as they are."""

    is_monitored = False

    def __init__(self, devices: tuple[Device, ...]) -> None:
        self._found = devices
        self.devices = devices
        self.states: dict[int, DeviceState] = {}

    @property
    def in_order(self) -> tuple[Device, ...]:
        """The devices in the order in which they are tried; one that is emptier goes first."""
        return self.devices

    def attempt_ended(self, job: RunningJob, now: float) -> None:
        """An attempt is over."""

    def take_use(self, attempt: int) -> GpuUse:
        """What was seen of an attempt; forgotten afterwards."""
        return GpuUse()

    def lease(self, request: Request, devices: tuple[int, ...]) -> Lease | None:
        """The right to use devices against everybody else on the host; None when others have it."""
        return Lease([])

    def drop_unused_waiter(self) -> None:
        """A decision was made: what nobody asked for any more is not waited for either."""

    def apply_settings(self, rows: Iterable[tuple[str, bool, int | None, str | None]]) -> None:
        """What people decided: (uuid, drained, slots, quarantine)."""
        by_uuid = {uuid: (drained, slots) for uuid, drained, slots, _ in rows}
        devices, states = [], {}
        for device in self._found:
            drained, slots = by_uuid.get(device.uuid, (False, None))
            devices.append(device._replace(slots=slots or device.slots))
            if drained:
                states[device.number] = DeviceState(closed="drained")
        if tuple(devices) != self.devices or states != self.states:
            self.devices, self.states = tuple(devices), states

    def quarantines(self) -> dict[str, str]:
        """Cards in trouble that are not in the books yet: (UUID, why)."""
        return {}

    def quarantines_recorded(self, uuids: Iterable[str]) -> None:
        """These are in the books now."""

    def close(self) -> None:
        """Give everything back."""


class ChangingGpus(FixedGpus):
    """Devices that follow the driver: what a lookout has to know of them."""

    is_monitored = True
    trouble: str | None  # why the driver cannot be asked
    lease_trouble: str | None
    waiter: Waiter | None  # stands in line for a card that somebody else has

    def update(self, sample: Sample, live: Mapping[int, RunningJob]) -> bool:
        """Take in a sample; True when a decision could come out differently."""
        raise NotImplementedError

    def take_waited_lease(self) -> bool:
        """The helper that stands in line for us has something to say."""
        raise NotImplementedError

    def next_poll(self, now: float) -> float | None:
        """When the driver should be asked again before its next sample."""
        raise NotImplementedError

    def lost(self) -> set[int]:
        """Devices that are not there any more; what runs on them cannot go on."""
        raise NotImplementedError

    def use_only(self, names: dict[str, int] | None) -> None:
        """Leave all other cards alone; the numbers are slots."""
        raise NotImplementedError
