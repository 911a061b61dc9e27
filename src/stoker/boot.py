"""The boot of this host: an attempt of an earlier boot is over, whatever the database says."""

from __future__ import annotations

import os

_known = ""


def boot_id() -> str:
    """The kernel's boot ID; tests override it with STOKER_BOOT_ID."""
    global _known
    override = os.environ.get("STOKER_BOOT_ID")
    if override:
        return override
    if not _known:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            _known = file.read().strip()
    return _known
