"""The highest memory use of all processes of an attempt, from samples while it runs.

The kernel reports the peak of the largest process of a job when it ends. A job with several
processes uses more, so attempts whose peak is to be learned (`--mem auto`) are sampled.
"""

from __future__ import annotations

from collections.abc import Collection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.engine.supervisor.process_usage import UsageSampler


class MemoryPeaks:
    def __init__(self, tag_base: int) -> None:
        self._tag_base = tag_base
        self._sampler: UsageSampler | None = None
        self._peaks: dict[int, int] = {}

    def sample(self, attempts: Collection[int], now: float) -> None:
        """Sample these attempts; `now` is monotonic."""
        if not attempts:
            return
        if self._sampler is None:
            from stoker.engine.supervisor.process_usage import UsageSampler

            self._sampler = UsageSampler(self._tag_base)
        for attempt, usage in self._sampler.sample(attempts, now).items():
            self._peaks[attempt] = max(usage.memory, self._peaks.get(attempt, 0))

    def take(self, attempt: int) -> int:
        """Return the peak of an attempt that has ended; 0 if it was never sampled."""
        return self._peaks.pop(attempt, 0)
