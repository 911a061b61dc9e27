"""The cores and the memory of this host that jobs share."""

from __future__ import annotations

import os

from stoker.engine.model import HostResources
from stoker.settings import Settings, cores

_CGROUPS = "/sys/fs/cgroup"


def host_resources(settings: Settings) -> HostResources:
    """Return what jobs share besides GPUs: the values of the settings, or what this host has."""
    return HostResources(
        cores=cores(settings), memory=settings.memory or host_memory(), counters=settings.resources
    )


def host_memory() -> int | None:
    """Return the bytes of memory of this host, or the lowest limit of the cgroups of this process.

    None if the kernel reports neither.
    """
    found = [*_cgroup_limits()]
    try:
        with open("/proc/meminfo", "rb") as file:
            for line in file:
                if line.startswith(b"MemTotal:"):
                    found.append(int(line.split()[1]) * 1024)
                    break
    except (OSError, ValueError):
        pass
    return min(found, default=None)


def _cgroup_limits() -> list[int]:
    """Return `memory.max` of the cgroup of this process and of those above it."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            path = next(line[3:].rstrip("\n") for line in file if line.startswith("0::"))
    except (OSError, StopIteration):
        return []
    found = []
    while True:
        try:
            with open(f"{_CGROUPS}{path}/memory.max", encoding="ascii") as file:
                text = file.read().strip()
            if text.isdigit():
                found.append(int(text))
        except OSError:
            pass
        if path in ("", "/"):
            return found
        path = os.path.dirname(path)
