"""CPU time and memory of the processes of each attempt.

One pass over /proc samples all attempts (job_processes.py finds their processes).
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection

from stoker.engine.supervisor.job_processes import processes_by_attempt
from stoker.record import Record

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")

# The proportional set size (PSS) divides shared pages among processes, but the kernel walks all
# pages to compute it. So it is read rarely, with a time limit, and only for large processes of
# attempts with several processes.
_LARGE_BYTES = 16 << 20
_PSS_SECONDS = 0.01  # time limit per sample
_PSS_INTERVAL_SECONDS = 60.0
_PSS_INTERVAL_FACTOR = 200  # times the duration of the last read


class ProcessUsage(Record):
    """One attempt. `cpu` is percent of one core since the last sample; None for the first."""

    cpu: float | None
    memory: int  # bytes; shared pages count once


class _Process(Record):
    pid: int
    started: int  # detects PID reuse
    own: int  # CPU time in clock ticks
    total: int  # including reaped children
    resident: int  # bytes


class _Pss(Record):
    share: float  # PSS divided by RSS
    resident: int  # RSS when it was measured
    expires_at: float


class UsageSampler:
    def __init__(self, tag_base: int) -> None:
        self._tag_base = tag_base
        self._before: dict[int, tuple[float, dict[tuple[int, int], _Process]]] = {}
        self._pss: dict[tuple[int, int], _Pss] = {}

    def sample(self, attempts: Collection[int], now: float) -> dict[int, ProcessUsage]:
        """The usage of those attempts that have processes; `now` is monotonic."""
        found = self._processes(attempts)
        before, self._before = self._before, {}
        usage = {}
        deadline = time.monotonic() + _PSS_SECONDS
        measured: dict[tuple[int, int], _Pss] = {}
        for attempt, processes in found.items():
            self._before[attempt] = (now, processes)
            cpu = None
            if attempt in before and now > before[attempt][0]:
                since, earlier = before[attempt]
                cpu = 100 * _spent(earlier, processes) / _TICK / (now - since)
                cpu = min(cpu, 100.0 * (os.cpu_count() or 1))
            memory = sum(process.resident for process in processes.values())
            if len(processes) > 1:
                large = {key: one for key, one in processes.items() if one.resident >= _LARGE_BYTES}
                memory -= self._shared(large, measured, now, deadline)
            usage[attempt] = ProcessUsage(cpu, memory)
        self._pss = measured
        return usage

    def _processes(self, attempts: Collection[int]) -> dict[int, dict[tuple[int, int], _Process]]:
        found: dict[int, dict[tuple[int, int], _Process]] = {}
        if not attempts:
            return found
        for attempt, processes in processes_by_attempt(self._tag_base).items():
            if attempt in attempts:
                pids = [process.pid for process in processes]
                read = (_read(pid) for pid in pids if not _is_runner(pid))
                found[attempt] = {(one.pid, one.started): one for one in read if one is not None}
        return found

    def _shared(
        self,
        processes: dict[tuple[int, int], _Process],
        kept: dict[tuple[int, int], _Pss],
        now: float,
        deadline: float,
    ) -> int:
        """Bytes that a sum of RSS counts twice; processes that were not measured use the mean."""
        is_first = True
        for key, process in processes.items():
            pss = self._pss.get(key)
            is_stale = pss is None or now >= pss.expires_at
            if pss is not None and abs(process.resident - pss.resident) > pss.resident / 4:
                is_stale = True
            if is_stale and (time.monotonic() < deadline or (is_first and pss is None)):
                pss = _read_pss(process, now)
                is_first = False
            if pss is not None:
                kept[key] = pss
        measured = [(kept[key].share, processes[key].resident) for key in processes if key in kept]
        known = sum(resident for _, resident in measured)
        if not known:
            return 0
        typical = sum(share * resident for share, resident in measured) / known
        return int(
            sum(
                (1 - (kept[key].share if key in kept else typical)) * process.resident
                for key, process in processes.items()
            )
        )


def _spent(
    before: dict[tuple[int, int], _Process], processes: dict[tuple[int, int], _Process]
) -> int:
    """Clock ticks that the processes of an attempt used between two samples.

    The CPU time of an exited process is added to its parent, so totals including children cover
    it, unless a process outside the tree reaped it. Then the running processes are a lower bound.
    """
    whole = sum(one.total for one in processes.values()) - sum(one.total for one in before.values())
    visible = sum(
        one.own - (before[key].own if key in before else 0) for key, one in processes.items()
    )
    return max(whole, visible, 0)


def _is_runner(pid: int) -> bool:
    """Whether this is the runner, which carries the tag of a job while it starts it, or a process
    of a job that has not executed its program yet and so shows the memory of the runner."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"stoker.engine.supervisor.runner" in file.read(4096).split(b"\0")
    except OSError:
        return False


def _read(pid: int) -> _Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    own = int(words[11]) + int(words[12])
    total = own + int(words[13]) + int(words[14])
    return _Process(pid, int(words[19]), own, total, int(words[21]) * _PAGE)


def _read_pss(process: _Process, now: float) -> _Pss:
    started = time.monotonic()
    share = 1.0
    try:
        with open(f"/proc/{process.pid}/smaps_rollup", "rb") as file:
            sizes = {words[0]: int(words[1]) for words in map(bytes.split, file) if len(words) == 3}
        share = min(1.0, sizes[b"Pss:"] / max(1, sizes[b"Rss:"]))
    except (OSError, KeyError, ValueError):
        pass  # exited, or not readable: count all of it
    took = time.monotonic() - started
    expires_at = now + max(_PSS_INTERVAL_SECONDS, took * _PSS_INTERVAL_FACTOR)
    return _Pss(share, process.resident, expires_at)
