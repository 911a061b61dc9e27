"""Facts about the machine, and whether other processes use it."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path


def facts(scratch: Path) -> dict[str, str]:
    """Facts that a reader needs to judge the figures."""
    shell = Path("/bin/sh").resolve().name
    return {
        "kernel": f"{platform.system()} {platform.release()}",
        "cores": str(os.cpu_count()),
        "processor": _first_value(Path("/proc/cpuinfo"), "model name"),
        "memory": f"{_memory_gib():.0f} GiB",
        "python": platform.python_version(),
        "sh": shell,
        "file system": file_system(scratch),
    }


def load() -> float:
    """The one-minute load average, which includes the benchmark's own jobs."""
    return os.getloadavg()[0]


def busy_share(seconds: float = 0.5) -> float:
    """Share of all cores that other processes use while this process sleeps.

    Unlike the load average, it does not include the benchmark's jobs of the last minute.
    """
    before = _cpu_ticks()
    time.sleep(seconds)
    after = _cpu_ticks()
    total = after[0] - before[0]
    return (after[1] - before[1]) / total if total else 0.0


def file_creation_us(folder: Path, count: int = 200) -> float:
    """Microseconds to create one empty file, in an empty folder.

    It is several times higher while the file system avoids recently freed inodes (see lab.py),
    which slows down the tools that keep files.
    """
    began = time.perf_counter()
    for number in range(count):
        (folder / str(number)).touch(exist_ok=False)
    return (time.perf_counter() - began) / count * 1e6


def file_system(path: Path) -> str:
    """Type of the file system that contains the path."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, this_kind, *_ = line.split()
        inside = mount == "/" or str(path.resolve()).startswith(mount + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, this_kind
    return kind


def _cpu_ticks() -> tuple[int, int]:
    """All CPU ticks, and those that were not idle, since boot."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    ticks = [int(word) for word in words]
    idle = ticks[3] + ticks[4]
    return sum(ticks), sum(ticks) - idle


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def _first_value(path: Path, key: str) -> str:
    for line in path.read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return "unknown"
