"""Find the devices: simulated ones when asked for, else those that the driver tells of.

Nothing here may hang: the driver is asked by a helper process with a time-out.
"""

from __future__ import annotations

import os

from stoker.core.gpus.sample import GpuSample
from stoker.core.model import Device
from stoker.errors import UsageError

_DRIVER_FOLDER = "/proc/driver/nvidia/gpus"
_DRIVER_FILES = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg")
_MAX_SIMULATED = 4096
# What a simulated device has; enough to try how jobs share one.
_SIMULATED_MEMORY = 80 << 30
_HOW_TO_LIST = "write 0,1,2 or 0+1,2+3, or UUIDs"


def find_devices(wanted: str | None, by_uuid: bool = False) -> tuple[Device, ...]:
    """`wanted` is a setting: `4` or `0,1,1,2` make simulated devices; None looks for real ones."""
    if wanted:
        return simulated(wanted)
    if not has_driver():
        return ()
    from stoker.devices.nvml_client import sample_once

    cards = sample_once().cards
    if cards is None:  # it does not answer; its files may still tell what there is
        return detect()
    return tuple(as_device(card, by_uuid=by_uuid) for card in cards)


def has_driver() -> bool:
    """Whether it makes sense to ask the NVIDIA driver; STOKER_NVML=1 or 0 overrides."""
    asked = os.environ.get("STOKER_NVML")
    if asked in ("0", "1"):
        return asked == "1"
    return any(os.path.exists(path) for path in _DRIVER_FILES)


def as_device(card: GpuSample, slots: int = 1, by_uuid: bool = False) -> Device:
    return Device(
        card.number, card.uuid if by_uuid else card.visible, slots, card.model, card.uuid,
        card.total - card.reserved, card.pci, card.slice_of,
    )  # fmt: skip


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
        device._replace(model="simulated", uuid=f"SIM-{device.visible}", memory=_SIMULATED_MEMORY)
        for device in parse_devices(text)
    )


def parse_devices(text: str) -> tuple[Device, ...]:
    """`0,1,1,2`: a repeated name is another slot; `0+1` is one device made of two cards."""
    slots: dict[str, int] = {}
    for word in text.split(",") if text.strip() else []:
        cards = [part.strip() for part in word.split("+")]
        for card in cards:
            if not is_device_name(card):
                which = f": `{card}` is none" if card else ""
                raise UsageError(f"`{text}` is not a list of devices{which}", _HOW_TO_LIST)
        if len(set(cards)) < len(cards):
            raise UsageError(f"`{word.strip()}` has a device twice", _HOW_TO_LIST)
        visible = ",".join(cards)
        slots[visible] = slots.get(visible, 0) + 1
    return tuple(
        Device(index, visible, count) for index, (visible, count) in enumerate(slots.items())
    )


def is_device_name(word: str) -> bool:
    """A number or a UUID, as CUDA_VISIBLE_DEVICES has them; a simulated one's is SIM-0.

    >>> [is_device_name(word) for word in ("0", "GPU-8f3a", "MIG-1/2/3", "-1", "x", "")]
    [True, True, True, False, False, False]
    """
    return (word.isascii() and word.isdigit() and len(word) < 6) or (
        word[:4].upper() in ("GPU-", "MIG-", "SIM-") and len(word) > 4
    )


def visible_names(mask: str) -> str:
    """What of CUDA_VISIBLE_DEVICES counts: CUDA ignores the first name it does not know, and all
    behind it, so that `-1` and `0,-1,1` are no card and one.

    >>> visible_names("2,3"), visible_names("0,-1,1"), visible_names("NoDevFiles")
    ('2,3', '0', '')
    """
    names = [word.strip() for word in mask.split(",")]
    end = next((i for i, name in enumerate(names) if not is_device_name(name)), len(names))
    return ",".join(names[:end])


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
