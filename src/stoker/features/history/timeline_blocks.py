"""The timeline of a GPU: blocks as they are drawn, few enough for a screen, with their words.

Short blocks next to each other are merged. Jobs that share a GPU get a lane each: a job keeps its
lane while it runs, and lanes never overlap.

>>> from stoker.features.history.gpu_time import Interval, cover
>>> intervals = [Interval("GPU-1", 0.0, 60.0, "busy", (7,), "", 1),
...              Interval("GPU-1", 60.0, 80.0, "busy", (7, 8), "", 1),
...              Interval("GPU-1", 80.0, 100.0, "waiting", (), "reserved for job 25", 0)]
>>> for bar in bars(merge_short(cover(intervals, 0.0, 100.0), step=1.0)):
...     print(bar.since, bar.until, bar.job, f"{bar.lane + 1}/{bar.lanes}", words_of(bar))
0.0 80.0 7 1/2 job 7
60.0 80.0 8 2/2 job 8
80.0 100.0 None 1/1 no job ran although jobs waited: reserved for job 25
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from stoker.features.history.gpu_activity import BUSY, IDLE, OTHERS, WAITING
from stoker.features.history.gpu_time import OFF, UNKNOWN, Block
from stoker.record import Record
from stoker.text.plurals import plural

MIXED = "mixed"  # several short blocks of different kinds
DRAINED = "drained"  # closed by the user
_MAX_LISTED = 8  # ids of the jobs of a merged block


class MergedBlock(Record):
    """One block, or several short ones next to each other."""

    since: float
    until: float
    kind: str  # of all parts, or MIXED
    jobs: tuple[int, ...]  # that ran during all of it
    reason: str  # the one that applied longest
    others: tuple[int, ...] = ()  # the first jobs that ran during a part of it
    short_jobs: int = 0  # the number of jobs that ran during a part of it
    seconds: tuple[tuple[str, float], ...] = ()  # by kind


class Bar(Record):
    """A block of one GPU as it is drawn: in lane `lane` of `lanes`, counted from the top."""

    since: float
    until: float
    kind: str
    lane: int = 0
    lanes: int = 1
    job: int | None = None  # the job that ran; None: several jobs, or none
    reason: str = ""
    others: tuple[int, ...] = ()
    short_jobs: int = 0
    seconds: tuple[tuple[str, float], ...] = ()
    is_forecast: bool = False
    is_open: bool = False  # its end is not known

    @property
    def look(self) -> str:
        """How it is shown: its kind, or DRAINED."""
        is_closed = self.kind in (IDLE, WAITING) and self.reason == DRAINED
        return DRAINED if is_closed else self.kind


class Run(Record):
    """A job on a GPU in the forecast; `until` is None if its end is not known."""

    job: int
    since: float
    until: float | None


def merge_short(blocks: Iterable[Block], step: float) -> list[MergedBlock]:
    """Return the same times in fewer blocks: blocks shorter than `step` are merged with others.

    A range of T seconds has at most 2 T / step + 1 blocks. The seconds of each kind stay the same.
    """
    found: list[MergedBlock] = []
    short: list[Block] = []
    lasted = 0.0
    for block in _joined(blocks):
        if block.seconds >= step:
            found += _merged(short)
            found += _merged([block])
            short, lasted = [], 0.0
            continue
        short.append(block)
        lasted += block.seconds
        if lasted >= step:
            found += _merged(short)
            short, lasted = [], 0.0
    return [*found, *_merged(short)]


def _joined(blocks: Iterable[Block]) -> list[Block]:
    """The same blocks; equal ones next to each other become one."""
    found: list[Block] = []
    for block in blocks:
        last = found[-1] if found else None
        if last is not None and (last.kind, last.jobs, last.reason) == (
            block.kind,
            block.jobs,
            block.reason,
        ):
            found[-1] = last._replace(until=block.until, starts=last.starts + block.starts)
        else:
            found.append(block)
    return found


def _merged(blocks: list[Block]) -> list[MergedBlock]:
    """One block for all of these; none for none."""
    if not blocks:
        return []
    first = blocks[0]
    seconds: dict[str, float] = {}
    reasons: dict[str, float] = {}
    known: dict[int, int] = {}  # the number of blocks in which a job ran
    for one in blocks:
        seconds[one.kind] = seconds.get(one.kind, 0.0) + one.seconds
        if one.reason:
            reasons[one.reason] = reasons.get(one.reason, 0.0) + one.seconds
        for job in one.jobs:
            known[job] = known.get(job, 0) + 1
    always = tuple(job for job, times in known.items() if times == len(blocks))
    others = tuple(job for job, times in known.items() if times < len(blocks))
    # Jobs of less than a second have no interval of their own; they count as started.
    started = sum(one.starts for one in blocks) if len(blocks) > 1 else 0
    return [
        MergedBlock(
            since=first.since,
            until=blocks[-1].until,
            kind=first.kind if len(seconds) == 1 else MIXED,
            jobs=always,
            reason=max(reasons, key=lambda reason: reasons[reason], default=""),
            others=others[:_MAX_LISTED],
            short_jobs=max(len(others), started - len(always)),
            seconds=tuple(sorted(seconds.items(), key=lambda pair: -pair[1])),
        )
    ]


def bars(blocks: Iterable[MergedBlock]) -> list[Bar]:
    """Return the blocks as they are drawn, by time; jobs that share a GPU have lanes."""
    found: list[Bar] = []
    busy: list[MergedBlock] = []  # without a pause between them
    for block in blocks:
        if block.kind == BUSY:
            busy.append(block)
            continue
        found += _lanes_of(_bars_of_jobs(busy))
        busy = []
        found.append(
            Bar(
                since=block.since,
                until=block.until,
                kind=block.kind,
                reason=block.reason,
                others=block.others,
                short_jobs=block.short_jobs,
                seconds=block.seconds,
            )
        )
    return [*found, *_lanes_of(_bars_of_jobs(busy))]


def forecast_bars(
    runs: Iterable[Run], now: float, until: float, lane_of: Mapping[int, int]
) -> list[Bar]:
    """Return the forecast of one GPU as bars from `now` on.

    `lane_of`: the lanes of the jobs that run now, which they keep.
    """
    found = []
    last = len(lane_of)
    for run in sorted(
        runs, key=lambda run: (max(run.since, now), lane_of.get(run.job, last), run.job)
    ):
        end = until if run.until is None else min(run.until, until)
        start = max(run.since, now)
        if end > start:
            found.append(
                Bar(
                    since=start,
                    until=end,
                    kind=BUSY,
                    job=run.job,
                    is_forecast=True,
                    is_open=run.until is None,
                )
            )
    return _lanes_of(found)


def _bars_of_jobs(blocks: list[MergedBlock]) -> list[Bar]:
    """One bar for each job, and one for each block in which further jobs ran."""
    found: list[Bar] = []
    running: dict[int, Bar] = {}
    for block in blocks:
        for job in [job for job in running if job not in block.jobs]:
            found.append(running.pop(job))
        for job in block.jobs:
            before = running.get(job)
            running[job] = (
                Bar(since=block.since, until=block.until, kind=BUSY, job=job, reason=block.reason)
                if before is None
                else before._replace(until=block.until, reason=before.reason or block.reason)
            )
        if block.short_jobs or not block.jobs:
            found.append(
                Bar(
                    since=block.since,
                    until=block.until,
                    kind=BUSY,
                    others=block.others,
                    short_jobs=block.short_jobs,
                    reason=block.reason,
                    seconds=block.seconds,
                )
            )
    return sorted(
        [*found, *running.values()], key=lambda bar: (bar.since, bar.job is None, bar.job)
    )


def _lanes_of(some: list[Bar]) -> list[Bar]:
    """Put each bar into the first lane that is free at its start.

    Bars that follow each other without a pause have the same number of lanes.
    """
    found: list[Bar] = []
    stretch: list[Bar] = []
    ends: list[float] = []  # by lane
    for bar in some:
        if stretch and bar.since >= max(ends):
            found += [one._replace(lanes=len(ends)) for one in stretch]
            stretch, ends = [], []
        lane = next((i for i, end in enumerate(ends) if end <= bar.since), len(ends))
        ends[lane : lane + 1] = [bar.until]
        stretch.append(bar._replace(lane=lane))
    return [*found, *(one._replace(lanes=len(ends)) for one in stretch)]


def words_of(bar: Bar) -> str:
    """What a bar shows, in words; without times and without the names of jobs."""
    if bar.kind == BUSY:
        return _busy_words(bar)
    if bar.kind == MIXED:
        return _mixed_words(bar)
    if bar.kind == WAITING:
        return f"no job ran although jobs waited: {bar.reason}"
    if bar.kind == OTHERS:
        return f"{bar.reason or 'used by other processes'}; no job waited for a GPU"
    if bar.kind == IDLE:
        return (f"{bar.reason}; " if bar.reason else "idle: ") + "no job waited for a GPU"
    return {OFF: "Stoker was not running", UNKNOWN: "no records of this time"}.get(bar.kind, "")


def _busy_words(bar: Bar) -> str:
    words = plural(max(1, bar.short_jobs), "short job") if bar.job is None else f"job {bar.job}"
    if bar.is_forecast:
        words += ", end unknown" if bar.is_open else ", forecast"
    return f"{words}; {bar.reason}" if bar.reason else words


def _mixed_words(bar: Bar) -> str:
    """`12 short jobs, busy 64% of the time; no job ran although jobs waited: drained`"""
    seconds = dict(bar.seconds)
    total = sum(seconds.values())
    parts = []
    if seconds.get(BUSY):
        percent = 100 * seconds[BUSY] / total
        shown = "<1%" if percent < 0.5 else f"{percent:.0f}%"
        parts.append(f"{plural(max(1, bar.short_jobs), 'short job')}, busy {shown} of the time")
    if seconds.get(WAITING):
        parts.append(f"no job ran although jobs waited: {bar.reason}")
    if seconds.get(OTHERS):
        parts.append("used by other processes")
    if seconds.get(OFF):
        parts.append("Stoker was not running for a part")
    return "; ".join(parts) or "short idle times"


def job_in(reason: str) -> int | None:
    """The job that a reason is about.

    >>> job_in("reserved for job 25"), job_in("drained")
    (25, None)
    """
    found = re.search(r"\bjob (\d{1,18})\b", reason)
    return None if found is None else int(found[1])
