"""Find the devices: simulated ones if configured, else those that the driver reports.

Nothing here may hang: a separate process with a timeout calls the driver.
"""

from __future__ import annotations

import os

from stoker.engine.gpus.sample import GpuSample
from stoker.engine.model import SIMULATED, Device
from stoker.errors import UsageError

_DRIVER_FOLDER = "/proc/driver/nvidia/gpus"
_DRIVER_FILES = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg")
_MAX_SIMULATED = 4096
# Bytes; enough to try how jobs share a GPU.
_SIMULATED_MEMORY = 80 << 30
_HOW_TO_LIST = "write 0,1,2 or 0+1,2+3, or UUIDs"


def find_devices(wanted: str | None, by_uuid: bool = False) -> tuple[Device, ...]:
    """Return the devices of this host.

    `wanted` is the setting `devices`: `4` or `0,1,1,2` make simulated devices; None detects GPUs.
    Raises UsageError.
    """
    if wanted:
        return simulated(wanted)
    if not has_driver():
        return ()
    from stoker.engine.devices.driver_client import sample_once

    gpus = sample_once().gpus
    if gpus is None:  # the driver does not answer, but /proc may list the GPUs
        return detect()
    return tuple(as_device(gpu, by_uuid=by_uuid) for gpu in gpus)


def has_driver() -> bool:
    """Whether this host seems to have an NVIDIA driver; STOKER_NVML=1 or 0 overrides."""
    override = os.environ.get("STOKER_NVML")
    if override in ("0", "1"):
        return override == "1"
    return any(os.path.exists(path) for path in _DRIVER_FILES)


def as_device(gpu: GpuSample, slots: int = 1, by_uuid: bool = False) -> Device:
    return Device(
        number=gpu.number,
        visible=gpu.uuid if by_uuid else gpu.visible,
        slots=slots,
        model=gpu.model,
        uuid=gpu.uuid,
        memory=gpu.total - gpu.reserved,
        pci=gpu.pci,
        slice_of=gpu.slice_of,
        numa=gpu.numa,
        cpus=gpu.cpus,
        links=gpu.links,
    )


def simulated(text: str) -> tuple[Device, ...]:
    """
    >>> [(device.visible, device.slots) for device in simulated("0,1,1")]
    [('0', 1), ('1', 2)]
    """
    if text.isascii() and text.isdigit():
        if int(text) > _MAX_SIMULATED:
            raise UsageError(f"{text} simulated GPUs are more than the {_MAX_SIMULATED} allowed")
        text = ",".join(str(index) for index in range(int(text)))
    return tuple(
        device._replace(
            model="simulated", uuid=SIMULATED + device.visible, memory=_SIMULATED_MEMORY
        )
        for device in parse_devices(text)
    )


def parse_devices(text: str) -> tuple[Device, ...]:
    """Parse `0,1,1,2`: a repeated name is another slot; `0+1` is one device made of two GPUs."""
    slots: dict[str, int] = {}
    for word in text.split(",") if text.strip() else []:
        names = [part.strip() for part in word.split("+")]
        for name in names:
            if not is_device_name(name):
                if not name:
                    raise UsageError(f"`{text}` is not a list of GPUs", _HOW_TO_LIST)
                raise UsageError(f"`{name}` is not a GPU index or UUID", _HOW_TO_LIST)
        if len(set(names)) < len(names):
            raise UsageError(f"`{word.strip()}` has a GPU twice", _HOW_TO_LIST)
        visible = ",".join(names)
        slots[visible] = slots.get(visible, 0) + 1
    return tuple(
        Device(index, visible, count) for index, (visible, count) in enumerate(slots.items())
    )


def is_device_name(word: str) -> bool:
    """Whether a word is a device index or UUID, as in CUDA_VISIBLE_DEVICES, or SIM-0.

    >>> [is_device_name(word) for word in ("0", "GPU-8f3a", "MIG-1/2/3", "-1", "x", "")]
    [True, True, True, False, False, False]
    """
    return (word.isascii() and word.isdigit() and len(word) < 6) or (
        word[:4].upper() in ("GPU-", "MIG-", "SIM-") and len(word) > 4
    )


def visible_names(mask: str) -> str:
    """Return the names in CUDA_VISIBLE_DEVICES that are effective.

    CUDA ignores the first invalid name and all after it: `-1` means no GPU, `0,-1,1` means GPU 0.

    >>> visible_names("2,3"), visible_names("0,-1,1"), visible_names("NoDevFiles")
    ('2,3', '0', '')
    """
    names = [word.strip() for word in mask.split(",")]
    end = next((i for i, name in enumerate(names) if not is_device_name(name)), len(names))
    return ",".join(names[:end])


def detect(folder: str = _DRIVER_FOLDER) -> tuple[Device, ...]:
    """Return the GPUs in /proc in PCI order, like CUDA_DEVICE_ORDER=PCI_BUS_ID."""
    try:
        addresses = sorted(os.listdir(folder))
    except OSError:
        return ()
    devices = []
    for index, address in enumerate(addresses):
        info = _information(os.path.join(folder, address, "information"))
        devices.append(
            Device(index, str(index), 1, info.get("Model", "GPU"), info.get("GPU UUID", ""))
        )
    return tuple(devices)


def _information(path: str) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            pairs = [line.partition(":") for line in file]
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in pairs}
