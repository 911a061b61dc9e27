"""The driver of simulated GPUs: nothing uses them, and they never change."""

from __future__ import annotations

from stoker.engine.devices.device_names import parse_devices
from stoker.engine.devices.driver import Driver
from stoker.engine.gpus.sample import GpuSample
from stoker.engine.model import SIMULATED
from stoker.errors import UsageError

_MAX_GPUS = 4096
# Bytes; enough to try how jobs share a GPU.
_MEMORY = 80 << 30


class SimulatedDriver(Driver):
    """The GPUs of the setting `devices`. Raises UsageError."""

    vendor = "simulated"

    def __init__(self, wanted: str) -> None:
        if wanted.isascii() and wanted.isdigit():
            if int(wanted) > _MAX_GPUS:
                raise UsageError(f"{wanted} simulated GPUs are more than the {_MAX_GPUS} allowed")
            wanted = ",".join(str(index) for index in range(int(wanted)))
        self.devices = parse_devices(wanted)  # with their slots, which no driver knows

    def gpus(self, now: float) -> tuple[GpuSample, ...]:
        return tuple(
            GpuSample(
                uuid=SIMULATED + device.visible,
                number=device.number,
                visible=device.visible,
                model="simulated",
                pci="",
                total=_MEMORY,
                reserved=0,
                used=0,
            )
            for device in self.devices
        )
