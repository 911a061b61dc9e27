"""What a GPU did over a time: blocks without gaps from its recorded intervals, and their sum.

`stoker gpus --history` shows the sums, the timeline of the web UI the blocks (timeline.py).

>>> intervals = [Interval("GPU-1", 0.0, 60.0, "busy", (7,), "", 1),
...              Interval("GPU-1", 60.0, 90.0, "waiting", (), "reserved for job 25", 0)]
>>> time = add_up(intervals, 0.0, 100.0)
>>> time.busy, time.waiting, time.off, time.jobs, time.reasons
(60.0, 30.0, 10.0, 1, (('reserved for job 25', 30.0),))
"""

from __future__ import annotations

from collections.abc import Iterable

from stoker.features.history.gpu_activity import BUSY, IDLE, OTHERS, WAITING
from stoker.record import Record

OFF = "off"  # Stoker was not running
UNKNOWN = "unknown"  # before the first record
_RECORDED = (BUSY, OTHERS, IDLE, WAITING)


class Interval(Record):
    """A GPU did the same from `since` to `until` (wall clock)."""

    uuid: str
    since: float
    until: float
    kind: str  # see features/history/gpu_activity.py
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


class Block(Record):
    """A part of a range of time in which a GPU did one thing."""

    since: float
    until: float
    kind: str  # see features/history/gpu_activity.py, or OFF or UNKNOWN
    jobs: tuple[int, ...] = ()  # the first few that ran during all of it
    reason: str = ""
    starts: int = 0  # jobs that count as begun in it

    @property
    def seconds(self) -> float:
        return self.until - self.since


def cover(intervals: Iterable[Interval], since: float, until: float) -> list[Block]:
    """Return what one GPU did from `since` to `until`: blocks without gaps and overlaps.

    Times without a record are times at which Stoker was not running, except those before the first
    record. Intervals that overlap, because the clock was set back, count once.
    """
    found: list[Block] = []
    starts = 0  # of intervals that were too short for a block
    end: float | None = None  # of what is covered so far
    for one in sorted(intervals, key=lambda one: one.since):
        if one.until <= since or one.since >= until or one.kind not in _RECORDED:
            continue
        start = max(one.since, since if end is None else end)
        if end is None:
            if start > since:
                found.append(Block(since, start, UNKNOWN))
            starts += len(one.jobs) if one.since < since else max(one.starts, len(one.jobs))
        else:
            if start > end:
                found.append(Block(end, start, OFF))
            starts += one.starts
        last = min(one.until, until)
        if last > start:
            found.append(Block(start, last, one.kind, one.jobs, one.reason, starts))
            starts = 0
        end = max(start, last)
    if end is None and until > since:
        found.append(Block(since, until, UNKNOWN))
    elif end is not None and until > end:
        found.append(Block(end, until, OFF))
    if starts and found:
        found[-1] = found[-1]._replace(starts=found[-1].starts + starts)
    return found


def add_up(intervals: Iterable[Interval], since: float, until: float) -> GpuTime:
    """Return what one GPU did from `since` to `until`: the sum of its blocks."""
    return sum_of(cover(intervals, since, until))


def sum_of(blocks: Iterable[Block]) -> GpuTime:
    """Return the seconds by what a GPU did, its jobs and its reasons."""
    seconds = dict.fromkeys((*_RECORDED, OFF, UNKNOWN), 0.0)
    reasons: dict[str, float] = {}
    jobs = 0
    for one in blocks:
        seconds[one.kind] += one.seconds
        jobs += one.starts
        if one.kind == WAITING:
            reasons[one.reason] = reasons.get(one.reason, 0.0) + one.seconds
    longest = sorted(reasons.items(), key=lambda reason: (-reason[1], reason[0]))
    return GpuTime(
        busy=seconds[BUSY],
        others=seconds[OTHERS],
        idle=seconds[IDLE],
        waiting=seconds[WAITING],
        off=seconds[OFF],
        unknown=seconds[UNKNOWN],
        jobs=jobs,
        reasons=tuple(longest),
    )
