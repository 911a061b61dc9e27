"""The file that says which cards may be used: `0,1,3` or one a line; a repeat is another slot."""

from __future__ import annotations

import os
import stat

from stoker.devices.discovery import parse_devices
from stoker.errors import UsageError

NOT_NAMED = "not among the cards that may be used"
_MAX_BYTES = 1 << 16


def read_gpu_file(path: str) -> dict[str, int]:
    """Slots by name; no names at all mean no card. Raises OSError, ValueError or UsageError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UsageError("it is not a file")
        words = file.read(_MAX_BYTES).decode().replace(",", " ").split()
    for word in words:
        if not (word.isascii() and word.isdigit()) and word[:4].upper() not in ("GPU-", "MIG-"):
            raise UsageError(f"`{word[:40]}` is no GPU")
    return {device.visible: device.slots for device in parse_devices(",".join(words))}
