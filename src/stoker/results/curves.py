"""The curve of one metric of one job, read from its files."""

from __future__ import annotations

from collections.abc import Iterable

from stoker.core.metrics.report_files import LogReader, MetricsReader
from stoker.core.metrics.report_line import Report, is_number
from stoker.core.metrics.summary import Timeline

Point = tuple[float, float]


def curve(
    name: str,
    metrics: Iterable[bytes] = (),
    logs: Iterable[tuple[int, Iterable[bytes]]] = (),
) -> list[Point]:
    """Return (step, value) pairs sorted by step. `logs` holds (attempt, chunks of its log); chunks
    may be cut anywhere.

    The rules are those of core.metrics: a later attempt replaces values from its first step on, and
    the log is used only for names that never occur in $STOKER_METRICS. If an attempt reports a step
    twice, the later value counts. NaN is kept, so that a plot shows a gap.
    """
    line = _Line(name)
    reader = MetricsReader()
    for piece in metrics:
        line.add(reader.feed(piece), None)
    line.add(reader.finish(), None)
    if not line.was_reported:
        for attempt, pieces in logs:
            log = LogReader()
            for piece in pieces:
                line.add(log.feed(piece), attempt)
            line.add(log.finish(), attempt)
    return line.points()


class _Line:
    def __init__(self, name: str) -> None:
        self._name = name
        self._timeline = Timeline()
        self._values: dict[float, float] = {}
        self.was_reported = False

    def add(self, reports: list[Report], attempt: int | None) -> None:
        for report in reports:
            value = report.values.get(self._name)
            if value is None:
                continue
            self.was_reported = True
            placed = self._timeline.place(
                report.step, attempt if report.attempt is None else report.attempt
            )
            if placed is None:
                continue
            step, replaces = placed
            if replaces:
                self._values = {s: v for s, v in self._values.items() if s < step}
            if is_number(value):
                self._values[step] = value

    def points(self) -> list[Point]:
        return sorted(self._values.items(), key=lambda point: point[0])


def downsample(points: list[Point], count: int) -> list[Point]:
    """Return at most `count` points (but at least 4), including the first, the last and all spikes.

    Of each bucket the smallest and the largest value are kept, or NaN if it has no other value.
    """
    count = max(4, count)
    if len(points) <= count:
        return points
    inner = points[1:-1]
    buckets = (count - 2) // 2
    kept = [points[0]]
    for number in range(buckets):
        bucket = inner[number * len(inner) // buckets : (number + 1) * len(inner) // buckets]
        real = [point for point in bucket if point[1] == point[1]]
        if not real:
            kept.append(bucket[0])
            continue
        low, high = min(real, key=_value), max(real, key=_value)
        kept += [low] if low is high else sorted((low, high), key=lambda point: point[0])
    kept.append(points[-1])
    return kept


def _value(point: Point) -> float:
    return point[1]
