"""When a set of jobs will have finished, from the likely ends of its running jobs and the forecast
of starts.

The policy is simulated only for the first jobs of each request group. The jobs behind them are
counted as work: their durations, divided by the number of jobs of the set that run at a time.

>>> running = [Interval(0.0, 60.0), Interval(0.0, 90.0)]
>>> finish_forecast(running, [Interval(60.0, 100.0)], [])
Finish(seconds=160.0, is_bound=False)
>>> finish_forecast(running, [], [Work(4, 100.0)])
Finish(seconds=275.0, is_bound=False)
>>> finish_forecast([Interval(0.0, None)], [], []) is None
True
"""

from __future__ import annotations

from collections.abc import Sequence

from stoker.record import Record


class Interval(Record):
    """A job that runs for `seconds` (None: unknown), from `start` seconds after now."""

    start: float
    seconds: float | None
    is_bound: bool = False  # it may end earlier: only its time limit is known


class Work(Record):
    """`jobs` without a forecast of their start, each of `seconds` (None: unknown)."""

    jobs: int
    seconds: float | None
    is_bound: bool = False


class Finish(Record):
    """`seconds` until the last job has finished; `is_bound`: at the latest."""

    seconds: float
    is_bound: bool = False


def finish_forecast(
    running: Sequence[Interval], starting: Sequence[Interval], later: Sequence[Work]
) -> Finish | None:
    """Return when all jobs will have finished; None if that cannot be predicted."""
    intervals = [*running, *starting]
    later = [work for work in later if work.jobs]
    if not intervals:
        return None
    end = total = 0.0
    for one in intervals:
        if one.seconds is None:
            return None
        end = max(end, one.start + one.seconds)
        total += one.seconds
    for work in later:
        if work.seconds is None:
            return None
        total += work.jobs * work.seconds
    if later:
        begin = min(one.start for one in intervals)
        end = max(end, begin + total / _most_at_a_time(intervals))
    is_bound = any(one.is_bound for one in intervals) or any(work.is_bound for work in later)
    return Finish(end, is_bound)


def _most_at_a_time(jobs: Sequence[Interval]) -> int:
    """How many of the jobs run at the same time, at most."""
    changes: list[tuple[float, int]] = []
    for job in jobs:
        changes += [(job.start, 1), (job.start + max(job.seconds or 0.0, 1e-6), -1)]
    most = count = 0
    for _, change in sorted(changes):
        count += change
        most = max(most, count)
    return max(1, most)
