"""What a GPU did over a time: the sum of its recorded intervals.

>>> intervals = [Interval("GPU-1", 0.0, 60.0, "busy", (7,), "", 1),
...              Interval("GPU-1", 60.0, 90.0, "waiting", (), "reserved for job 25", 0)]
>>> time = add_up(intervals, 0.0, 100.0)
>>> time.busy, time.waiting, time.off, time.jobs, time.reasons
(60.0, 30.0, 10.0, 1, (('reserved for job 25', 30.0),))
"""

from __future__ import annotations

from collections.abc import Iterable

from stoker.core.policy.gpu_activity import BUSY, IDLE, OTHERS, WAITING
from stoker.core.record import Record


class Interval(Record):
    """A GPU did the same from `since` to `until` (wall clock)."""

    uuid: str
    since: float
    until: float
    kind: str  # see core/policy/gpu_activity.py
    jobs: tuple[int, ...]  # the first few
    reason: str  # why it was idle although jobs waited
    starts: int  # jobs that started on it during that time


class GpuTime(Record):
    """Seconds by what a GPU did; they add up to the whole time."""

    busy: float = 0.0  # with jobs of this queue
    others: float = 0.0  # with other processes, while no job of this queue waited for a GPU
    idle: float = 0.0  # while no job waited for a GPU
    waiting: float = 0.0  # idle, or with other processes, while jobs waited
    off: float = 0.0  # Stoker was not running
    unknown: float = 0.0  # before the first record
    jobs: int = 0  # that ran on it
    reasons: tuple[tuple[str, float], ...] = ()  # of `waiting`, the longest first


def add_up(intervals: Iterable[Interval], since: float, until: float) -> GpuTime:
    """Return what one GPU did from `since` to `until`.

    Times without a record are times at which Stoker was not running, except those before the first
    record. Intervals that overlap, because the clock was set back, count once.
    """
    seconds = dict.fromkeys((BUSY, OTHERS, IDLE, WAITING), 0.0)
    reasons: dict[str, float] = {}
    off = unknown = 0.0
    jobs = 0
    end: float | None = None  # of what is counted so far
    for one in sorted(intervals, key=lambda one: one.since):
        if one.until <= since or one.since >= until or one.kind not in seconds:
            continue
        start = max(one.since, since if end is None else end)
        if end is None:
            unknown = start - since
            jobs += len(one.jobs) if one.since < since else max(one.starts, len(one.jobs))
        else:
            off += start - end
            jobs += one.starts
        last = min(one.until, until)
        lasted = max(0.0, last - start)
        seconds[one.kind] += lasted
        if one.kind == WAITING:
            reasons[one.reason] = reasons.get(one.reason, 0.0) + lasted
        end = max(start, last)
    if end is None:
        unknown = until - since
    else:
        off += until - end
    longest = sorted(reasons.items(), key=lambda reason: (-reason[1], reason[0]))
    return GpuTime(
        busy=seconds[BUSY],
        others=seconds[OTHERS],
        idle=seconds[IDLE],
        waiting=seconds[WAITING],
        off=off,
        unknown=unknown,
        jobs=jobs,
        reasons=tuple(longest),
    )
