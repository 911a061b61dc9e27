"""Divide jobs into chunks: how many jobs run in one allocation of a backend, and for how long.

An allocation costs its engine about as much whether it runs one job or a thousand, and an
allocation that waits in the engine's queue binds its jobs. So:

- Long jobs, and jobs on several nodes, have an allocation each.
- Short jobs share one: at most ten minutes of work, and no more than an equal part of all jobs, so
  that all GPUs of the backend have work; but at least a few seconds of work.
- Jobs of unknown length are divided like short ones, but the worker starts no further job after a
  minute, and returns the rest. Jobs of that command are then treated as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil

from stoker.core.record import Record

LONG_SECONDS = 600.0  # jobs of at least this length have an allocation of their own
_TARGET_SECONDS = 600.0  # work in one allocation
_WORTH_SECONDS = 5.0  # less work does not pay for another allocation
UNKNOWN_SECONDS = 60.0
MAX_JOBS = 10_000  # in one chunk
_MARGIN = 4.0  # of time limits, because durations vary
_MIN_LIMIT = 600.0


class Candidate(Record):
    """A ready job. `seconds`: its expected duration; None if it is unknown."""

    id: int
    seconds: float | None
    time_limit: float | None = None


class Chunk(Record):
    """Jobs that run in one allocation, in order."""

    jobs: tuple[int, ...]
    is_single: bool
    time_limit: float | None  # of the allocation; None: the default of the engine
    unknown_seconds: float | None = None  # start no further job after this long


def divide(
    jobs: Sequence[Candidate], slots: int, *, grace: float = 10.0, is_single: bool = False
) -> list[Chunk]:
    """Divide jobs with equal requests into chunks.

    `slots`: how many of them the backend can run at the same time. `is_single`: an allocation for
    each, whatever their length. Jobs that share allocations are dealt out in turn.
    """
    if is_single:
        return [_single(job, grace) for job in jobs]
    long = [job for job in jobs if job.seconds is not None and job.seconds >= LONG_SECONDS]
    short = [job for job in jobs if job.seconds is not None and job.seconds < LONG_SECONDS]
    unknown = [job for job in jobs if job.seconds is None]
    chunks = [_single(job, grace) for job in long]
    chunks += _share(short, slots, grace)
    if len(unknown) <= slots:
        chunks += [_single(job, grace) for job in unknown]
    else:
        chunks += _share(unknown, slots, grace)
    return chunks


def _single(job: Candidate, grace: float) -> Chunk:
    limit = None if job.time_limit is None else job.time_limit + _overhead(grace)
    return Chunk(jobs=(job.id,), is_single=True, time_limit=limit)


def _share(jobs: Sequence[Candidate], slots: int, grace: float) -> list[Chunk]:
    if not jobs:
        return []
    known = [job.seconds for job in jobs if job.seconds is not None]
    mean = sum(known) / len(known) if known else None
    chunks = _chunk_count(len(jobs), slots, mean)
    # In turn, so that the first jobs start first.
    return [_shared(jobs[first::chunks], mean, grace) for first in range(chunks)]


def _chunk_count(count: int, slots: int, mean: float | None) -> int:
    """How many allocations run `count` jobs."""
    fewest = ceil(count / MAX_JOBS)
    if mean is None:
        return max(fewest, min(count, slots))
    fewest = max(fewest, ceil(count * mean / _TARGET_SECONDS))
    worth = ceil(count * mean / _WORTH_SECONDS)
    return min(count, max(1, fewest, min(slots, worth)))


def _shared(jobs: Sequence[Candidate], mean: float | None, grace: float) -> Chunk:
    if len(jobs) == 1:
        return _single(jobs[0], grace)
    ids = tuple(job.id for job in jobs)
    longest = max((job.time_limit or 0.0 for job in jobs), default=0.0)
    if mean is None:
        limit = longest + UNKNOWN_SECONDS + _overhead(grace) if _all_limited(jobs) else None
        return Chunk(jobs=ids, is_single=False, time_limit=limit, unknown_seconds=UNKNOWN_SECONDS)
    work = sum(job.seconds or 0.0 for job in jobs)
    limit = max(_MIN_LIMIT, _MARGIN * work) + longest + _overhead(grace)
    return Chunk(jobs=ids, is_single=False, time_limit=limit)


def _all_limited(jobs: Iterable[Candidate]) -> bool:
    return all(job.time_limit is not None for job in jobs)


def _overhead(grace: float) -> float:
    """Seconds for the start of the worker and for stopping the last job."""
    return 60.0 + grace
