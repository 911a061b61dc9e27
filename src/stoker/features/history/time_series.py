"""Time series of resource usage: compression, downsampling for storage and for charts.

A reading is a time (hundredths of seconds since the epoch) and one integer per column of its track,
or None if the value is unknown. Times are stored as deltas of deltas and values as deltas, both as
variable-length integers: at a steady pace and value, each costs one byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from stoker.record import Record

TICKS_PER_SECOND = 100  # units of time in a second
_MAX_SHIFT = 63  # limits the number of bits of a decoded integer

Reading = tuple[int, tuple[int | None, ...]]
Point = tuple[float, float | None]  # (unix seconds, value); None begins a gap


class Measure(Record):
    unit: str
    step: float  # the unit of the integers in a reading
    is_mean: bool = False  # a reading holds the mean of several samples, else their maximum


MEASURES = {
    "cpu": Measure("percent", 0.1),
    "memory": Measure("bytes", 1 << 16),
    "gpu_use": Measure("percent", 1, is_mean=True),
    "gpu_memory": Measure("bytes", 1 << 20),
    "power": Measure("watts", 1, is_mean=True),
    "temperature": Measure("celsius", 1),
}

# The columns of each kind of track. The names are stored in the database.
_GPU = ("gpu_use", "gpu_memory", "power", "temperature")
TRACKS = {
    "job_processes": ("cpu", "memory"),  # the process tree of a job
    "job_gpus": _GPU,  # the part of its GPUs that a job uses
    "gpu": _GPU,
}


def gather(kind: str, samples: Sequence[Sequence[float | None]]) -> tuple[int | None, ...]:
    """Combine several samples into the values of one reading.

    >>> gather("gpu", [(50, 3 << 20, 100.4, 30), (100, 2 << 20, None, 31)])
    (75, 3, 100, 31)
    """
    values: list[int | None] = []
    for name, column in zip(TRACKS[kind], zip(*samples, strict=True), strict=True):
        known = [value for value in column if value is not None]
        if not known:
            values.append(None)
            continue
        measure = MEASURES[name]
        value = sum(known) / len(known) if measure.is_mean else max(known)
        values.append(round(value / measure.step))
    return tuple(values)


# -- packed ----------------------------------------------------------------------------------------


def encode(readings: Sequence[Reading]) -> bytes:
    """Pack any number of readings of one track."""
    out = bytearray()
    width = len(readings[0][1]) if readings else 0
    _put(out, len(readings))
    _put(out, width)
    before, pace = 0, 0
    for index, (at, _) in enumerate(readings):
        _put(out, _zigzag(at - before - pace))
        before, pace = at, at - before if index else 0
    for column in range(width):
        last = 0
        for _, values in readings:
            value = values[column]
            if value is None:
                _put(out, 0)
            else:
                _put(out, _zigzag(value - last) + 1)
                last = value
    return bytes(out)


def decode(data: bytes) -> list[Reading]:
    """Unpack readings; raises ValueError if the data is not a valid block."""
    numbers = list(_numbers(data))
    count, width = numbers[:2] if len(numbers) > 1 else (0, 0)
    if len(numbers) != 2 + count * (width + 1):
        raise ValueError("not a block of readings")
    times = []
    before = pace = 0
    for index, number in enumerate(numbers[2 : 2 + count]):
        delta = (-(number + 1 >> 1) if number & 1 else number >> 1) + pace
        before, pace = before + delta, delta if index else 0
        times.append(before)
    columns = [
        _column(numbers[start : start + count])
        for start in range(2 + count, len(numbers), max(1, count))
    ]
    rows: Iterable[tuple[int | None, ...]] = zip(*columns, strict=True) if columns else [()] * count
    return list(zip(times, rows, strict=True))


def _column(numbers: list[int]) -> list[int | None]:
    last = 0
    column: list[int | None] = []
    for number in numbers:
        if number:  # a zigzag-encoded delta plus one
            last += number >> 1 if number & 1 else -(number >> 1)
            column.append(last)
        else:
            column.append(None)
    return column


def _zigzag(number: int) -> int:
    """Map 0, -1, 1, -2, ... to 0, 1, 2, 3, ... (zigzag encoding)."""
    return number << 1 if number >= 0 else (-number << 1) - 1


def _put(out: bytearray, number: int) -> None:
    """Append a LEB128 varint: seven bits per byte, the lowest first."""
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _numbers(data: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in data:
        if byte & 0x80:
            if shift > _MAX_SHIFT:
                raise ValueError("a number in the block of readings is too large")
            number |= (byte & 0x7F) << shift
            shift += 7
        else:
            yield number | byte << shift
            number = shift = 0
    if shift:
        raise ValueError("the block of readings is truncated")


# -- fewer -----------------------------------------------------------------------------------------


def coarsen(readings: Iterable[Reading], width: int) -> list[Reading]:
    """Return at most two readings per interval of `width`: its minima and its maxima."""
    intervals: dict[int, list[Reading]] = {}
    for reading in sorted(readings, key=itemgetter(0)):
        intervals.setdefault(reading[0] // width, []).append(reading)
    found = []
    for group in intervals.values():
        columns = [
            [value for value in column if value is not None]
            for column in zip(*(values for _, values in group), strict=True)
        ]
        lowest = tuple(min(column, default=None) for column in columns)
        highest = tuple(max(column, default=None) for column in columns)
        found.append((group[0][0], lowest))
        if highest != lowest:
            found.append((group[-1][0], highest))
    return found


def chart(
    points: list[tuple[float, float]], gaps: Sequence[tuple[float, float]], most: int
) -> list[Point]:
    """Return at most `most` points (but at least three), sorted by time.

    The minimum and the maximum of each interval are kept unchanged. `gaps` are the times without
    readings; gaps that are wide enough to be visible get a point with value None.
    """
    if len(points) + len(gaps) <= most:
        width, kept = 0.0, points
    else:
        # Each interval has a minimum, a maximum, and at most one gap.
        intervals = max(1, most // (3 if gaps else 2))
        first, last = min(points)[0], max(points)[0]
        width = (last - first) / intervals
        kept = list(_extremes(points, first, width, intervals))
    marks: list[Point] = [((start + end) / 2, None) for start, end in gaps if end - start > width]
    return sorted([*kept, *marks], key=itemgetter(0))


def _extremes(
    points: list[tuple[float, float]], first: float, width: float, intervals: int
) -> Iterator[tuple[float, float]]:
    found: dict[int, tuple[tuple[float, float], tuple[float, float]]] = {}
    for point in points:
        place = min(intervals - 1, int((point[0] - first) / width)) if width else 0
        low, high = found.get(place, (point, point))
        found[place] = (
            point if point[1] < low[1] else low,
            point if point[1] > high[1] else high,
        )
    for low, high in found.values():
        yield low
        if high != low:
            yield high
