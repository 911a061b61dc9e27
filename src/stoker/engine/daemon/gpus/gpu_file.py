"""The file that lists the GPUs to use: `0,1,3`, or one per line; a repeated GPU gets more slots."""

from __future__ import annotations

import os
import stat

from stoker.engine.devices.device_names import parse_devices
from stoker.errors import UsageError

NOT_NAMED = "not listed in the GPU file"
_MAX_BYTES = 1 << 16


def read_gpu_file(path: str) -> dict[str, int]:
    """Slots by GPU name; an empty file allows no GPU. Raises OSError, ValueError, UsageError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UsageError("it is not a regular file")
        words = file.read(_MAX_BYTES).decode().replace(",", " ").split()
    for word in words:
        if not (word.isascii() and word.isdigit()) and word[:4].upper() not in ("GPU-", "MIG-"):
            raise UsageError(f"`{word[:40]}` is not a GPU")
    return {device.visible: device.slots for device in parse_devices(",".join(words))}
