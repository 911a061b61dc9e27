"""Readings over time: how they are packed, made coarser, and thinned out for a chart.

A reading is a moment (hundredths of seconds since the epoch) and one whole number for each column
of its track, None where nobody knew. Packed, moments are differences of differences and values are
differences, each in as few bytes as it needs: a steady beat and a steady card cost a byte each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from stoker.core.record import Record

TICKS = 100  # units of time in a second
_LONGEST_SHIFT = 63  # numbers have about as many bits, so that sums of them are sane

Reading = tuple[int, tuple[int | None, ...]]
Point = tuple[float, float | None]  # (unix seconds, value); None: nothing is known from here on


class Measure(Record):
    unit: str
    step: float  # what 1 stands for in a reading
    is_mean: bool = False  # of several looks the mean is kept, else the highest


MEASURES = {
    "cpu": Measure("percent", 0.1),
    "memory": Measure("bytes", 1 << 16),
    "gpu_use": Measure("percent", 1, is_mean=True),
    "gpu_memory": Measure("bytes", 1 << 20),
    "power": Measure("watts", 1, is_mean=True),
    "temperature": Measure("celsius", 1),
}

# The columns of each kind of track.
_GPU = ("gpu_use", "gpu_memory", "power", "temperature")
TRACKS = {
    "tree": ("cpu", "memory"),  # of a job
    "share": _GPU,  # what a job has of its cards
    "card": _GPU,
}


def gather(kind: str, looks: Sequence[Sequence[float | None]]) -> tuple[int | None, ...]:
    """Several looks as the values of one reading.

    >>> gather("card", [(50, 3 << 20, 100.4, 30), (100, 2 << 20, None, 31)])
    (75, 3, 100, 31)
    """
    values: list[int | None] = []
    for name, column in zip(TRACKS[kind], zip(*looks, strict=True), strict=True):
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
    """Any number of readings of one track."""
    out = bytearray()
    width = len(readings[0][1]) if readings else 0
    _put(out, len(readings))
    _put(out, width)
    before, pace = 0, 0
    for index, (at, _) in enumerate(readings):
        _put(out, _fold_sign(at - before - pace))
        before, pace = at, at - before if index else 0
    for column in range(width):
        last = 0
        for _, values in readings:
            value = values[column]
            if value is None:
                _put(out, 0)
            else:
                _put(out, _fold_sign(value - last) + 1)
                last = value
    return bytes(out)


def decode(data: bytes) -> list[Reading]:
    """What was encoded; ValueError when this is something else."""
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
        if number:  # one more than a folded difference
            last += number >> 1 if number & 1 else -(number >> 1)
            column.append(last)
        else:
            column.append(None)
    return column


def _fold_sign(number: int) -> int:
    """0, -1, 1, -2, ... as 0, 1, 2, 3, ..."""
    return number << 1 if number >= 0 else (-number << 1) - 1


def _put(out: bytearray, number: int) -> None:
    """Seven bits in a byte, the lowest first; the eighth says that more follow."""
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _numbers(data: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in data:
        if byte & 0x80:
            if shift > _LONGEST_SHIFT:
                raise ValueError("a block of readings with a number that is too big")
            number |= (byte & 0x7F) << shift
            shift += 7
        else:
            yield number | byte << shift
            number = shift = 0
    if shift:
        raise ValueError("a block of readings that is cut off")


# -- fewer -----------------------------------------------------------------------------------------


def coarsen(readings: Iterable[Reading], width: int) -> list[Reading]:
    """At most two readings for each stretch of time: all its lowest values, all its highest."""
    stretches: dict[int, list[Reading]] = {}
    for reading in sorted(readings, key=itemgetter(0)):
        stretches.setdefault(reading[0] // width, []).append(reading)
    found = []
    for some in stretches.values():
        columns = [
            [value for value in column if value is not None]
            for column in zip(*(values for _, values in some), strict=True)
        ]
        lowest = tuple(min(column, default=None) for column in columns)
        highest = tuple(max(column, default=None) for column in columns)
        found.append((some[0][0], lowest))
        if highest != lowest:
            found.append((some[-1][0], highest))
    return found


def chart(
    points: list[tuple[float, float]], gaps: Sequence[tuple[float, float]], most: int
) -> list[Point]:
    """At most so many points (but never less than three) in the order of time.

    The lowest and the highest of each stretch are among them, as they were. `gaps` are the times
    without readings; those that would be seen get a point without a value.
    """
    if len(points) + len(gaps) <= most:
        width, kept = 0.0, points
    else:
        # Each has a lowest and a highest point, and begins one gap at most.
        stretches = max(1, most // (3 if gaps else 2))
        first, last = min(points)[0], max(points)[0]
        width = (last - first) / stretches
        kept = list(_extremes(points, first, width, stretches))
    marks: list[Point] = [((start + end) / 2, None) for start, end in gaps if end - start > width]
    return sorted([*kept, *marks], key=itemgetter(0))


def _extremes(
    points: list[tuple[float, float]], first: float, width: float, stretches: int
) -> Iterator[tuple[float, float]]:
    found: dict[int, tuple[tuple[float, float], tuple[float, float]]] = {}
    for point in points:
        place = min(stretches - 1, int((point[0] - first) / width)) if width else 0
        low, high = found.get(place, (point, point))
        found[place] = (
            point if point[1] < low[1] else low,
            point if point[1] > high[1] else high,
        )
    for low, high in found.values():
        yield low
        if high != low:
            yield high
