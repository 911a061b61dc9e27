"""Resource usage of a GPU or a job over time, for charts. Works without the daemon.

>>> job_trace("/no/such/folder", 7, points=600)
{}
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import pairwise
from operator import itemgetter

from stoker.features.history import store_usage as usage_history
from stoker.features.history.time_series import (
    MEASURES,
    TICKS_PER_SECOND,
    TRACKS,
    Point,
    Reading,
    chart,
)
from stoker.record import Record
from stoker.text.finite_values import finite

# A longer pause between readings is a gap. By level: fine readings, five-minute readings.
_GAP_TICKS = (
    60 * TICKS_PER_SECOND,
    round(2.2 * usage_history.COARSE_STEP_SECONDS * TICKS_PER_SECOND),
)
# Later readings were taken while the clock was wrong.
_AHEAD_SECONDS = 60.0


class Series(Record):
    """`unit` is percent, bytes, watts or celsius. A value of None begins a gap."""

    unit: str
    points: list[Point]  # (unix seconds, value), sorted by time


def gpu_trace(state_dir: str, uuid: str, since: float, points: int) -> dict[str, Series]:
    """gpu_use, gpu_memory, power and temperature of a GPU, those that its driver reports."""
    return _series("gpu", usage_history.read(state_dir, "gpu", uuid, since), points)


def job_trace(state_dir: str, job: int, points: int) -> dict[str, Series]:
    """cpu and memory of a job's processes and their share of its GPUs, over all attempts.

    cpu is in percent of one core. With several GPUs, gpu_use is the mean, temperature the maximum,
    and the others are sums. If jobs share a GPU, each gets an equal part of its power.
    """
    found: dict[str, Series] = {}
    for kind in ("job_processes", "job_gpus"):
        found |= _series(kind, usage_history.read(state_dir, kind, str(job)), points)
    return found


def series_json(traces: dict[str, Series]) -> dict[str, dict[str, object]]:
    return {
        name: {"unit": series.unit, "points": [finite(list(point)) for point in series.points]}
        for name, series in traces.items()
    }


def _series(kind: str, readings: Iterable[tuple[int, Reading]], most: int) -> dict[str, Series]:
    latest = round((time.time() + _AHEAD_SECONDS) * TICKS_PER_SECOND)
    known = [(at, level, values) for level, (at, values) in readings if at <= latest]
    known.sort(key=itemgetter(0))
    gaps = []
    for (start, level, _), (end, next_level, _) in pairwise(known):
        if end - start > _GAP_TICKS[max(level, next_level)]:
            gaps.append((start / TICKS_PER_SECOND, end / TICKS_PER_SECOND))
    found = {}
    for column, name in enumerate(TRACKS[kind]):
        measure = MEASURES[name]
        points = [
            (at / TICKS_PER_SECOND, value * measure.step)
            for at, _, values in known
            if (value := values[column]) is not None
        ]
        if points:
            found[name] = Series(measure.unit, chart(points, gaps, most))
    return found
