"""GPU memory, utilization and energy of attempts, summed up from samples."""

from __future__ import annotations

from collections.abc import Mapping

from stoker.engine.gpus.occupancy import Occupancy
from stoker.engine.gpus.sample import GpuSample
from stoker.engine.model import RunningJob
from stoker.engine.supervisor.job_processes import owner_of
from stoker.record import Record

# With less free memory than this, libraries fail with errors that do not mention memory.
_FULL_BYTES = 1 << 30


class GpuUse(Record):
    """GPU use of one attempt."""

    memory: int | None = None  # peak on one GPU, bytes
    utilization: float | None = None  # mean, percent
    energy: float | None = None  # joules
    was_full: bool = False  # one of its GPUs had almost no free memory in the last sample
    was_crowded: bool = False  # it shared its GPU with others because of an estimate


NOTHING_SEEN = GpuUse()


class _Meter:
    """Running totals of one attempt."""

    __slots__ = (
        "energy",
        "full",
        "is_crowded",
        "memory",
        "pids",
        "samples",
        "seen_at",
        "utilization",
    )

    def __init__(self) -> None:
        self.memory = 0
        self.utilization = 0.0
        self.samples = 0
        self.energy = 0.0
        self.seen_at: float | None = None
        self.pids: set[int] = set()  # PIDs that the driver listed for it
        self.full: set[int] = set()  # its GPUs with almost no free memory
        self.is_crowded = False


class UsageMeters:
    """A meter for each attempt that was seen on a GPU."""

    def __init__(self, tag_base: int) -> None:
        self._tag_base = tag_base
        self._by_attempt: dict[int, _Meter] = {}

    def attempts(self) -> dict[int, int]:
        """The attempt of each process that the driver has listed, by PID."""
        return {pid: attempt for attempt, m in self._by_attempt.items() for pid in m.pids}

    def pids(self, attempt: int) -> set[int]:
        meter = self._by_attempt.get(attempt)
        return set() if meter is None else meter.pids

    def add_sample(
        self, gpu: GpuSample, occupancy: Occupancy, live: Mapping[int, RunningJob], at: float
    ) -> None:
        """Add the sample of one GPU."""
        for process in gpu.processes:
            attempt = owner_of(process.pid, self._tag_base)
            if attempt is not None:
                self._meter(attempt).pids.add(process.pid)
        jobs_here = [job for job in live.values() if gpu.number in job.devices]
        estimated = {job.attempt for job in jobs_here if job.request.is_auto}
        is_crowded = len(estimated & occupancy.ours.keys()) > 1
        for job in jobs_here:
            meter = self._meter(job.attempt)
            if job.attempt in occupancy.ours:
                meter.is_crowded = is_crowded and job.attempt in estimated
            is_gone = meter.memory and job.attempt not in occupancy.ours  # its memory is free again
            meter.memory = max(meter.memory, occupancy.ours.get(job.attempt, 0))
            if gpu.total and gpu.total - gpu.reserved - gpu.used < _FULL_BYTES:
                meter.full.add(gpu.number)
            elif not is_gone:
                meter.full.discard(gpu.number)
            if gpu.utilisation is not None:
                meter.utilization += gpu.utilisation
                meter.samples += 1
            if gpu.power is not None and meter.seen_at is not None:
                meter.energy += gpu.power * max(0.0, at - meter.seen_at) / len(jobs_here)
            if job.devices[-1] == gpu.number:
                meter.seen_at = at

    def take(self, attempt: int) -> GpuUse:
        """Return and forget the totals of an attempt that has ended."""
        meter = self._by_attempt.pop(attempt, None)
        if meter is None:
            return NOTHING_SEEN
        mean = meter.utilization / meter.samples if meter.samples else None
        return GpuUse(
            meter.memory or None, mean, meter.energy or None, bool(meter.full), meter.is_crowded
        )

    def _meter(self, attempt: int) -> _Meter:
        return self._by_attempt.setdefault(attempt, _Meter())
