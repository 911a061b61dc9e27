"""Attempts that have ended and may still occupy GPU memory: their GPUs stay closed until then."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from stoker.engine.gpus.occupancy import Occupancy
from stoker.engine.gpus.sample import GpuSample
from stoker.engine.model import RunningJob
from stoker.engine.supervisor.kill_processes import kill_attempt
from stoker.record import Record

# How long an attempt may still occupy GPU memory; then its processes are killed.
_CLEARING_SECONDS = 5.0


class _EndedAttempt(Record):
    ended_at: float
    pids: set[int]
    had_unowned_memory: bool  # the GPU had memory without an owner before the attempt ended


class EndedAttempts:
    def __init__(self, tag_base: int) -> None:
        self._tag_base = tag_base
        self._on: dict[int, dict[int, _EndedAttempt]] = {}  # by device and attempt

    def add(
        self, job: RunningJob, pids: set[int], occupancy: Mapping[int, Occupancy], now: float
    ) -> None:
        for number in job.devices:
            had_unowned = number in occupancy and occupancy[number].has_hidden
            self._on.setdefault(number, {})[job.attempt] = _EndedAttempt(now, pids, had_unowned)

    def occupy(self, device: int) -> bool:
        """Whether the driver has not confirmed yet that their processes are gone."""
        return bool(self._on.get(device))

    def are_recent(self, now: float) -> bool:
        """Whether any may still end by itself."""
        attempts = [one for some in self._on.values() for one in some.values()]
        return any(one.ended_at + _CLEARING_SECONDS > now for one in attempts)

    def check(self, gpu: GpuSample, occupancy: Occupancy, at: float) -> None:
        """Forget those that a sample of their GPU does not show any more; kill those that stay."""
        clearing = self._on.get(gpu.number, {})
        for attempt, ended in list(clearing.items()):
            is_late = at > ended.ended_at + _CLEARING_SECONDS
            # Memory without an owner is probably that of its last process, being freed.
            is_freeing = occupancy.has_hidden and not ended.had_unowned_memory and not is_late
            listed = {process.pid for process in gpu.processes} & ended.pids
            is_listed = listed or attempt in occupancy.ours
            if at > ended.ended_at and not is_listed and not is_freeing:
                del clearing[attempt]
            elif is_late:
                kill_attempt(self._tag_base, attempt)

    def keep_only(self, devices: Collection[int]) -> None:
        """Forget those on GPUs that are gone: their memory is gone, too."""
        for number in self._on.keys() - devices:
            del self._on[number]
