"""The curve of one metric of one job, read from its files."""

from __future__ import annotations

from collections.abc import Iterable

from stoker.core.metrics.report_files import LogReader, MetricsReader
from stoker.core.metrics.report_line import Report
from stoker.results.curve_line import CurveLine, Point, add_piece


def curve(
    name: str,
    metrics: Iterable[bytes] = (),
    logs: Iterable[tuple[int, Iterable[bytes]]] = (),
    events: Iterable[list[Report]] = (),
) -> list[Point]:
    """Return (step, value) pairs sorted by step. `logs` holds (attempt, chunks of its log); chunks
    may be cut anywhere. `events` holds the reports of event files, read only if no other file has
    the name.

    The rules are those of `CurveLine`; the log is used only for names that never occur in
    $STOKER_METRICS.
    """
    line = CurveLine()
    reader = MetricsReader()
    for piece in metrics:
        add_piece({name: line}, reader, piece)
    line.add(name, reader.finish(), None)
    if not line.was_reported:
        for attempt, pieces in logs:
            log = LogReader()
            for piece in pieces:
                line.add(name, log.feed(piece), attempt)
            line.add(name, log.finish(), attempt)
    if not line.was_reported:
        for reports in events:
            line.add(name, reports, None)
    return line.points()


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
