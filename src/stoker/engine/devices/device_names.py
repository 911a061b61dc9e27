"""Names of GPUs: indices and UUIDs, as in the setting `devices` and in CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

from stoker.engine.model import Device
from stoker.errors import UsageError

_HOW_TO_LIST = "write 0,1,2 or 0+1,2+3, or UUIDs"


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
