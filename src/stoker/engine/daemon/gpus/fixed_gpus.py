"""GPUs that never change: simulated ones, or none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stoker.engine.daemon.gpus.gpus import Gpus
from stoker.engine.model import Device, DeviceState


class FixedGpus(Gpus):
    """Only the settings of the database change these GPUs."""

    def __init__(self, devices: tuple[Device, ...]) -> None:
        super().__init__(devices)
        self._found = devices
        self._shares: dict[str, str] = {}  # by UUID

    def apply_settings(self, rows: Iterable[tuple[str, bool, int | None, str | None]]) -> None:
        by_uuid = {uuid: (drained, slots) for uuid, drained, slots, _ in rows}
        devices, states = [], {}
        for device in self._found:
            drained, slots = by_uuid.get(device.uuid, (False, None))
            devices.append(
                device._replace(
                    slots=slots or device.slots, share=self._shares.get(device.uuid, "")
                )
            )
            if drained:
                states[device.number] = DeviceState(closed_reason="drained")
        if tuple(devices) != self.devices or states != self.states:
            self.devices, self.states = tuple(devices), states

    def apply_shares(self, shares: Mapping[str, str]) -> None:
        if shares != self._shares:
            self._shares = dict(shares)
            self.devices = tuple(
                one._replace(share=shares.get(one.uuid, "")) for one in self.devices
            )
