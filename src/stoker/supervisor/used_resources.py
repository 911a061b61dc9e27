"""CPU time and peak memory of a process that is not our child, from /proc.

`wait4` reports them only to the parent. A sample contains everything since the start of the
process, so the last one before its exit lacks at most the time between two samples.
"""

from __future__ import annotations

import os

from stoker.core.record import Record
from stoker.supervisor.job_processes import descendants

_TICK = os.sysconf("SC_CLK_TCK")


class UsedResources(Record):
    """What a process and its descendants used until now."""

    user_seconds: float = 0.0
    system_seconds: float = 0.0
    max_rss_bytes: int = 0

    def at_least(self, other: UsedResources) -> UsedResources:
        """The larger of each value: a sample misses processes that ended since the last one."""
        return UsedResources(
            user_seconds=max(self.user_seconds, other.user_seconds),
            system_seconds=max(self.system_seconds, other.system_seconds),
            max_rss_bytes=max(self.max_rss_bytes, other.max_rss_bytes),
        )


def read_used_resources(pid: int) -> UsedResources:
    """Sample a process and its descendants; zeros if it has exited."""
    user = system = 0.0
    peak = 0
    for one in (pid, *descendants(pid)):
        try:
            with open(f"/proc/{one}/stat", "rb") as file:
                words = file.read().rpartition(b")")[2].split()
        except OSError:
            continue  # exited: its parent's totals contain it when it is reaped
        user += (int(words[11]) + int(words[13])) / _TICK  # its own, and of reaped children
        system += (int(words[12]) + int(words[14])) / _TICK
        peak = max(peak, _peak(one))
    return UsedResources(user, system, peak)


def _peak(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            line = next((line for line in file if line.startswith(b"VmHWM:")), b"VmHWM: 0 kB")
        return int(line.split()[1]) * 1024
    except OSError:
        return 0
