"""What attempts do with their cards, added up from samples."""

from __future__ import annotations

from collections.abc import Mapping

from stoker.core.gpus.occupancy import Occupancy
from stoker.core.gpus.sample import GpuSample
from stoker.core.model import RunningJob
from stoker.core.record import Record
from stoker.supervisor.job_processes import owner_of

# Libraries that find no more than this free fail without a word of memory.
_FULL = 1 << 30


class GpuUse(Record):
    """What one attempt did with its cards."""

    memory: int | None = None  # the most it had on one card, bytes
    utilisation: float | None = None  # mean, percent
    energy: float | None = None  # joules
    was_full: bool = False  # a card of its had next to no memory left when it was last seen


NOTHING_SEEN = GpuUse()


class _Meter:
    """Adds up what samples say of one attempt."""

    __slots__ = ("energy", "full", "ids", "memory", "samples", "seen_at", "utilisation")

    def __init__(self) -> None:
        self.memory = 0
        self.utilisation = 0.0
        self.samples = 0
        self.energy = 0.0
        self.seen_at: float | None = None
        self.ids: set[int] = set()  # the processes that the driver listed for it
        self.full: set[int] = set()  # cards of its that had next to no memory left


class UsageMeters:
    """One for each attempt that was seen on a card."""

    def __init__(self, tag_base: int) -> None:
        self._tag_base = tag_base
        self._by_attempt: dict[int, _Meter] = {}

    def attempts(self) -> dict[int, int]:
        """Whose the processes are that the driver has listed, by PID."""
        return {pid: attempt for attempt, m in self._by_attempt.items() for pid in m.ids}

    def pids(self, attempt: int) -> set[int]:
        meter = self._by_attempt.get(attempt)
        return set() if meter is None else meter.ids

    def read(
        self, card: GpuSample, seen: Occupancy, live: Mapping[int, RunningJob], at: float
    ) -> None:
        """Add what a sample says of one card."""
        for process in card.processes:
            attempt = owner_of(process.pid, self._tag_base)
            if attempt is not None:
                self._meter(attempt).ids.add(process.pid)
        here = [job for job in live.values() if card.number in job.devices]
        for job in here:
            meter = self._meter(job.attempt)
            is_gone = meter.memory and job.attempt not in seen.ours  # what it had is free again
            meter.memory = max(meter.memory, seen.ours.get(job.attempt, 0))
            if card.total and card.total - card.reserved - card.used < _FULL:
                meter.full.add(card.number)
            elif not is_gone:
                meter.full.discard(card.number)
            if card.utilisation is not None:
                meter.utilisation += card.utilisation
                meter.samples += 1
            if card.power is not None and meter.seen_at is not None:
                meter.energy += card.power * max(0.0, at - meter.seen_at) / len(here)
            if job.devices[-1] == card.number:
                meter.seen_at = at

    def take(self, attempt: int) -> GpuUse:
        """The sum for an attempt that is over."""
        meter = self._by_attempt.pop(attempt, None)
        if meter is None:
            return NOTHING_SEEN
        mean = meter.utilisation / meter.samples if meter.samples else None
        return GpuUse(meter.memory or None, mean, meter.energy or None, bool(meter.full))

    def _meter(self, attempt: int) -> _Meter:
        return self._by_attempt.setdefault(attempt, _Meter())
