"""What the processes of each attempt use of the host: processor time and memory.

One pass over /proc serves all attempts (job_processes.py says which processes are whose).
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection

from stoker.core.record import Record
from stoker.supervisor.job_processes import processes_by_attempt

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")

# To divide shared pages among those who share them, the kernel walks all pages of a process. That
# is done for big processes that are not alone, now and then, and never for long.
_BIG = 16 << 20
_WEIGH_SECONDS = 0.01
_WEIGH_AGAIN_SECONDS = 60.0
_WEIGH_RARELY = 200  # times as long as it took


class ProcessUsage(Record):
    """One attempt. `cpu` is percent of one core since the last look; None at the first."""

    cpu: float | None
    memory: int  # bytes; pages that its processes share count once


class _Process(Record):
    pid: int
    born: int  # with the PID, one process for ever
    own: int  # processor time in clock ticks
    total: int  # with that of its children that are gone
    resident: int  # bytes


class _Weight(Record):
    share: float  # of what is resident, after shared pages are divided
    resident: int  # when that was measured
    again_at: float


class UsageSampler:
    def __init__(self, tag_base: int) -> None:
        self._tag_base = tag_base
        self._before: dict[int, tuple[float, dict[tuple[int, int], _Process]]] = {}
        self._weights: dict[tuple[int, int], _Weight] = {}

    def look(self, attempts: Collection[int], now: float) -> dict[int, ProcessUsage]:
        """Those of these attempts that have processes; `now` is monotonic."""
        found = self._processes(attempts)
        before, self._before = self._before, {}
        trees = {}
        give_up = time.monotonic() + _WEIGH_SECONDS
        weights: dict[tuple[int, int], _Weight] = {}
        for attempt, processes in found.items():
            self._before[attempt] = (now, processes)
            cpu = None
            if attempt in before and now > before[attempt][0]:
                since, earlier = before[attempt]
                cpu = 100 * _spent(earlier, processes) / _TICK / (now - since)
                cpu = min(cpu, 100.0 * (os.cpu_count() or 1))
            memory = sum(process.resident for process in processes.values())
            if len(processes) > 1:
                big = {key: one for key, one in processes.items() if one.resident >= _BIG}
                memory -= self._shared(big, weights, now, give_up)
            trees[attempt] = ProcessUsage(cpu, memory)
        self._weights = weights
        return trees

    def _processes(self, attempts: Collection[int]) -> dict[int, dict[tuple[int, int], _Process]]:
        found: dict[int, dict[tuple[int, int], _Process]] = {}
        if not attempts:
            return found
        for attempt, processes in processes_by_attempt(self._tag_base).items():
            if attempt in attempts:
                read = (_read(process.pid) for process in processes)
                found[attempt] = {(one.pid, one.born): one for one in read if one is not None}
        return found

    def _shared(
        self,
        processes: dict[tuple[int, int], _Process],
        kept: dict[tuple[int, int], _Weight],
        now: float,
        give_up: float,
    ) -> int:
        """How many bytes a plain sum counts too often; a process not weighed is like the others."""
        is_first = True
        for key, process in processes.items():
            weight = self._weights.get(key)
            stale = weight is None or now >= weight.again_at
            if weight is not None and abs(process.resident - weight.resident) > weight.resident / 4:
                stale = True
            if stale and (time.monotonic() < give_up or (is_first and weight is None)):
                weight = _weigh(process, now)
                is_first = False
            if weight is not None:
                kept[key] = weight
        weighed = [(kept[key].share, processes[key].resident) for key in processes if key in kept]
        known = sum(resident for _, resident in weighed)
        if not known:
            return 0
        typical = sum(share * resident for share, resident in weighed) / known
        return int(sum(
            (1 - (kept[key].share if key in kept else typical)) * process.resident
            for key, process in processes.items()
        ))  # fmt: skip


def _spent(
    before: dict[tuple[int, int], _Process], processes: dict[tuple[int, int], _Process]
) -> int:
    """Clock ticks that a tree used between two looks.

    The time of a process that ended is found with its parent, so sums with children tell it all,
    unless somebody outside of the tree collected it: then at least what the others used is known.
    """
    whole = sum(one.total for one in processes.values()) - sum(one.total for one in before.values())
    visible = sum(
        one.own - (before[key].own if key in before else 0) for key, one in processes.items()
    )
    return max(whole, visible, 0)


def _read(pid: int) -> _Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    own = int(words[11]) + int(words[12])
    total = own + int(words[13]) + int(words[14])
    return _Process(pid, int(words[19]), own, total, int(words[21]) * _PAGE)


def _weigh(process: _Process, now: float) -> _Weight:
    begun = time.monotonic()
    share = 1.0
    try:
        with open(f"/proc/{process.pid}/smaps_rollup", "rb") as file:
            sizes = {words[0]: int(words[1]) for words in map(bytes.split, file) if len(words) == 3}
        share = min(1.0, sizes[b"Pss:"] / max(1, sizes[b"Rss:"]))
    except (OSError, KeyError, ValueError):
        pass  # gone, or not ours to look into: then all of it counts
    took = time.monotonic() - begun
    again_at = now + max(_WEIGH_AGAIN_SECONDS, took * _WEIGH_RARELY)
    return _Weight(share, process.resident, again_at)
