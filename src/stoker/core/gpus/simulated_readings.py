"""The use of a simulated GPU over time, from the recorded blocks of what ran on it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from stoker.core.gpus.gpu_time import OFF, UNKNOWN, Block
from stoker.core.gpus.simulated_use import JobOnGpu, SimulatedUse, simulated_use

_STARTING_SECONDS = 5.0  # between the record of a start and the record of what the GPU does


def simulated_readings(
    uuid: str,
    total: int,
    blocks: Iterable[Block],
    known: Mapping[int, JobOnGpu],
    times: Iterable[float],
) -> Iterator[tuple[float, SimulatedUse]]:
    """Yield what a GPU did at each time that a block covers; nothing for times without a record.

    `blocks`: what ran on it, by time. `known`: what is known of the jobs; a job that started again
    later, or that was removed, counts from the first block that has it.
    """
    later = iter(sorted(times))
    at = next(later, None)
    began: dict[int, float] = {}
    for block in blocks:
        began = {job: began.get(job, block.since) for job in block.jobs}
        jobs = [_on_gpu(job, since, known.get(job)) for job, since in began.items()]
        while at is not None and at < block.until:
            if at >= block.since and block.kind not in (OFF, UNKNOWN):
                yield at, simulated_use(uuid, total, jobs, at)
            at = next(later, None)


def _on_gpu(job: int, since: float, known: JobOnGpu | None) -> JobOnGpu:
    if known is None:
        return JobOnGpu(job, since, None)
    return known if known.since <= since + _STARTING_SECONDS else known._replace(since=since)


def steady_times(since: float, until: float, most: int, least_step: float = 5.0) -> list[float]:
    """At most `most` times in a range, the same ones for a range that is a little later.

    >>> steady_times(1.0, 21.0, 10), len(steady_times(0.0, 86400.0, 300)) <= 300
    ([5.0, 10.0, 15.0, 20.0], True)
    """
    step = max(least_step, math.ceil((until - since) / max(1, most) / least_step) * least_step)
    first = math.ceil(since / step)
    count = min(most, max(0, math.floor(until / step) - first + 1))
    return [step * (first + index) for index in range(count)]
