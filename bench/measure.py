"""Compute figures from stamps, with pure functions.

Only what the jobs recorded themselves is used (see stamp.c), never what a tool reports. Times are
nanoseconds of CLOCK_MONOTONIC, the clock of `time.monotonic_ns`, so stamps and the time of the
typed command can be compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

NS_PER_S = 1e9
NS_PER_MS = 1e6


class Stamp(NamedTuple):
    """The record of one job; slot is -1 if the tool sets no CUDA_VISIBLE_DEVICES."""

    job: int
    start: int
    end: int
    pid: int
    slot: int


@dataclass(frozen=True)
class Figures:
    """The result of one run of one tool."""

    jobs: int
    unique: int
    peak: int
    clashes: int
    steady: float  # jobs per second
    with_start_up: float
    gap_p50_ms: float
    gap_p99_ms: float
    idle: float


def parse_stamps(text: str) -> list[Stamp]:
    """Parse a stamp log; the lines are in the order in which the jobs ended."""
    return [Stamp(*map(int, line.split())) for line in text.splitlines()]


def percentile(values: Sequence[float], percent: float) -> float:
    """Nearest-rank percentile; nan without values."""
    if not values:
        return float("nan")
    ranked = sorted(values)
    rank = max(1, -(-len(ranked) * percent // 100))
    return ranked[int(rank) - 1]


def peak_concurrency(stamps: Iterable[Stamp]) -> int:
    """The most jobs alive at the same time."""
    # In the same nanosecond an end (-1) sorts before a start (+1), because the slot was free.
    edges = sorted(edge for s in stamps for edge in ((s.start, 1), (s.end, -1)))
    alive = peak = 0
    for _, step in edges:
        alive += step
        peak = max(peak, alive)
    return peak


def slot_clashes(stamps: Iterable[Stamp]) -> int:
    """Jobs that started on a numbered slot while another job still ran there."""
    by_slot: dict[int, list[Stamp]] = defaultdict(list)
    for stamp in stamps:
        if stamp.slot >= 0:
            by_slot[stamp.slot].append(stamp)
    clashes = 0
    for held in by_slot.values():
        busy_until = 0
        for stamp in sorted(held, key=lambda s: s.start):
            clashes += stamp.start < busy_until
            busy_until = max(busy_until, stamp.end)
    return clashes


def slot_gaps(stamps: Sequence[Stamp], slots: int) -> list[int]:
    """Times from the k-th release of a slot to the start of the job that takes it.

    The first `slots` starts find free slots. After that, the k-th end makes the k-th further start
    possible. This does not depend on slot numbers, so it also works for tools without them.
    """
    starts = sorted(s.start for s in stamps)
    ends = sorted(s.end for s in stamps)
    return [start - end for start, end in zip(starts[slots:], ends, strict=False)]


def steady_rate(stamps: Sequence[Stamp]) -> float:
    """Jobs per second from the first start to the last end."""
    span = max(s.end for s in stamps) - min(s.start for s in stamps)
    return len(stamps) * NS_PER_S / span


def rate_since(stamps: Sequence[Stamp], command_at_ns: int) -> float:
    """Jobs per second from the typed command to the last end."""
    return len(stamps) * NS_PER_S / (max(s.end for s in stamps) - command_at_ns)


def idle_share(stamps: Sequence[Stamp], slots: int) -> float:
    """Share of slot time, from the first start to the last end, in which no job ran."""
    span = max(s.end for s in stamps) - min(s.start for s in stamps)
    busy = sum(s.end - s.start for s in stamps)
    return 1 - busy / (slots * span)


def first_started(stamps: Iterable[Stamp], count: int) -> list[Stamp]:
    """The `count` jobs that started first."""
    return sorted(stamps, key=lambda s: s.start)[:count]


def figures(stamps: Sequence[Stamp], slots: int, command_at_ns: int) -> Figures:
    """All figures of one run."""
    gaps = [gap / NS_PER_MS for gap in slot_gaps(stamps, slots)]
    return Figures(
        jobs=len(stamps),
        unique=len({s.job for s in stamps}),
        peak=peak_concurrency(stamps),
        clashes=slot_clashes(stamps),
        steady=steady_rate(stamps),
        with_start_up=rate_since(stamps, command_at_ns),
        gap_p50_ms=percentile(gaps, 50),
        gap_p99_ms=percentile(gaps, 99),
        idle=idle_share(stamps, slots),
    )


def invalid_reasons(found: Figures, wanted: int, slots: int) -> list[str]:
    """Reasons why a run is invalid; empty for a valid run."""
    problems = []
    if found.unique != wanted or found.jobs != wanted:
        problems.append(f"{found.jobs} jobs ran, {found.unique} different, wanted {wanted}")
    if found.peak > slots:
        problems.append(f"{found.peak} jobs at once on {slots} slots")
    if found.clashes:
        problems.append(f"{found.clashes} jobs started on a busy slot")
    return problems
