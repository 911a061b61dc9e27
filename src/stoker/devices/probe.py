"""Find the devices: simulated ones when asked for, else what the driver's own files say.

Nothing here may hang: no library of the driver is loaded, only its folder in /proc is read.
"""

from __future__ import annotations

import os

from stoker.core.model import Device
from stoker.errors import UsageError

_DRIVER_FOLDER = "/proc/driver/nvidia/gpus"
_MAX_SIMULATED = 4096


def find_devices(wanted: str | None) -> tuple[Device, ...]:
    """`wanted` is a setting: `4` or `0,1,1,2` make simulated devices; None looks for real ones."""
    return simulated(wanted) if wanted else detect()


def simulated(text: str) -> tuple[Device, ...]:
    """
    >>> [(device.visible, device.slots) for device in simulated("0,1,1")]
    [('0', 1), ('1', 2)]
    """
    if text.isascii() and text.isdigit():
        if int(text) > _MAX_SIMULATED:
            raise UsageError(f"{text} simulated devices are more than the {_MAX_SIMULATED} allowed")
        text = ",".join(str(index) for index in range(int(text)))
    return tuple(
        device._replace(model="simulated", uuid=f"SIM-{device.visible}")
        for device in parse_devices(text)
    )


def parse_devices(text: str) -> tuple[Device, ...]:
    """`0,1,1,2`: a repeated name is another slot; `0+1` is one device made of two cards."""
    slots: dict[str, int] = {}
    for word in text.split(",") if text.strip() else []:
        visible = ",".join(part.strip() for part in word.split("+"))
        if not visible.strip(","):
            raise UsageError(f"`{text}` is not a list of devices", "write 0,1,2 or 0+1,2+3")
        slots[visible] = slots.get(visible, 0) + 1
    return tuple(
        Device(index, visible, count) for index, (visible, count) in enumerate(slots.items())
    )


def detect(folder: str = _DRIVER_FOLDER) -> tuple[Device, ...]:
    """Cards in PCI order, which is the order that CUDA_DEVICE_ORDER=PCI_BUS_ID gives them."""
    try:
        addresses = sorted(os.listdir(folder))
    except OSError:
        return ()
    devices = []
    for index, address in enumerate(addresses):
        facts = _information(os.path.join(folder, address, "information"))
        devices.append(
            Device(index, str(index), 1, facts.get("Model", "GPU"), facts.get("GPU UUID", ""))
        )
    return tuple(devices)


def _information(path: str) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            pairs = [line.partition(":") for line in file]
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in pairs}
