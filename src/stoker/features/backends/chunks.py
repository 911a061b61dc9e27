"""Divide jobs into chunks: how many jobs run in one allocation of a backend, and for how long.

An allocation costs its engine about as much whether it runs one job or a thousand, and an
allocation that waits in the engine's queue binds its jobs. So:

- Long jobs, and jobs on several nodes, have an allocation each.
- Short jobs share one. A chunk is half of an equal share of the work that is left (guided
  self-scheduling): chunks become smaller towards the end, so that all GPUs finish at about the same
  time. A chunk has at most ten minutes of work, and at least a few seconds.
- Jobs of unknown length are dealt out in turn, but the worker starts no further job after a minute,
  and returns the rest. If none of them has ended by then, jobs of that command are treated as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import ceil, inf

from stoker.record import Record

LONG_SECONDS = 600.0  # jobs of at least this length have an allocation of their own
MOST_SECONDS = 600.0  # of work in one allocation
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
    jobs: Sequence[Candidate],
    slots: int,
    *,
    backlog: float = 0.0,
    grace: float = 10.0,
    is_single: bool = False,
    most_seconds: float | None = None,
) -> list[Chunk]:
    """Divide jobs with equal requests into chunks.

    `slots`: how many of them the backend can run at the same time. `backlog`: seconds of work that
    the backend has already, or that follows. `is_single`: an allocation for each, whatever their
    length. `most_seconds`: the longest time limit that the engine allows. A job that may need most
    of it has an allocation of its own; if its own time limit is longer, the engine says that it
    never starts.
    """
    most = inf if most_seconds is None else most_seconds
    long = {job.id for job in jobs if needed_seconds(job) + _overhead(grace) > most}
    chunks = [_single(job, grace) for job in jobs if job.id in long]
    fitting = [job for job in jobs if job.id not in long]
    chunks += _divide(fitting, slots, backlog, grace, is_single, most)
    limits = {job.id: job.time_limit or 0.0 for job in jobs}
    return [
        chunk._replace(time_limit=most)
        if (chunk.time_limit or 0.0) > most >= limits[chunk.jobs[0]]
        else chunk
        for chunk in chunks
    ]


def needed_seconds(job: Candidate) -> float:
    """How long a worker expects a job to run at most, when it decides whether to start it."""
    return job.time_limit or 2 * (job.seconds or 0.0)


def _divide(
    jobs: Sequence[Candidate],
    slots: int,
    backlog: float,
    grace: float,
    is_single: bool,
    most: float,
) -> list[Chunk]:
    if is_single:
        return [_single(job, grace) for job in jobs]
    long = [job for job in jobs if job.seconds is not None and job.seconds >= LONG_SECONDS]
    short = [job for job in jobs if job.seconds is not None and job.seconds < LONG_SECONDS]
    unknown = [job for job in jobs if job.seconds is None]
    chunks = [_single(job, grace) for job in long]
    chunks += [_shared(some, grace) for some in _guided(short, max(1, slots), backlog, most)]
    chunks += [_shared(some, grace) for some in _dealt(unknown, max(1, slots))]
    return chunks


def _guided(
    jobs: Sequence[Candidate], slots: int, backlog: float, most: float
) -> Iterator[Sequence[Candidate]]:
    """Jobs of known length, in order, in chunks of decreasing length."""
    left = backlog + sum(job.seconds or 0.0 for job in jobs)
    first = 0
    while first < len(jobs):
        wanted = min(MOST_SECONDS, most / 2, max(_WORTH_SECONDS, left / (2 * slots)))
        work, end = 0.0, first
        while end < len(jobs) and work < wanted and end - first < MAX_JOBS:
            work += jobs[end].seconds or 0.0
            end += 1
        yield jobs[first:end]
        left -= work
        first = end


def _dealt(jobs: Sequence[Candidate], slots: int) -> Iterator[Sequence[Candidate]]:
    """Jobs of unknown length, dealt out in turn, so that the first jobs start first."""
    count = max(min(len(jobs), slots), ceil(len(jobs) / MAX_JOBS))
    for first in range(count):
        yield jobs[first::count]


def _single(job: Candidate, grace: float) -> Chunk:
    limit = None if job.time_limit is None else job.time_limit + _overhead(grace)
    return Chunk(jobs=(job.id,), is_single=True, time_limit=limit)


def _shared(jobs: Sequence[Candidate], grace: float) -> Chunk:
    if len(jobs) == 1:
        return _single(jobs[0], grace)
    ids = tuple(job.id for job in jobs)
    longest = max((job.time_limit or 0.0 for job in jobs), default=0.0)
    if any(job.seconds is None for job in jobs):
        limit = longest + UNKNOWN_SECONDS + _overhead(grace) if _all_limited(jobs) else None
        return Chunk(jobs=ids, is_single=False, time_limit=limit, unknown_seconds=UNKNOWN_SECONDS)
    work = sum(job.seconds or 0.0 for job in jobs)
    limit = _rounded(_MARGIN * work) + longest + _overhead(grace)
    return Chunk(jobs=ids, is_single=False, time_limit=limit)


def _rounded(seconds: float) -> float:
    """One of few time limits, because allocations of one batch have the same limit."""
    limit = _MIN_LIMIT
    while limit < seconds:
        limit *= 2
    return limit


def _all_limited(jobs: Iterable[Candidate]) -> bool:
    return all(job.time_limit is not None for job in jobs)


def _overhead(grace: float) -> float:
    """Seconds for the start of the worker and for stopping the last job."""
    return 60.0 + grace
