"""Charts as numbers: curves over steps or time, smoothed, ranked, grouped and reduced.

`stoker plot` and the web UI draw what these functions return. All are pure.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence

from stoker.features.results import table
from stoker.features.results.curve_line import Point, whole
from stoker.features.results.export import short
from stoker.features.results.reports.report_block import increases
from stoker.features.results.table import Columns, Group, Row
from stoker.record import Record

MAX_GRID = 2000  # different x values at which a group of curves is averaged
EVEN_GRID = 500  # evenly spaced ones, if there are more
MAX_BANDS = 50
STEP, TIME = "step", "time"
BAND = "the lowest to the highest value"  # what a band shows


class Curve(Record):
    """Values at increasing x. NaN is a gap."""

    xs: array[float]
    ys: array[float]

    def points(self) -> list[Point]:
        return [(whole(x), y) for x, y in zip(self.xs, self.ys, strict=True)]


class Band(Record):
    """Curves of one group: their mean, and their lowest and highest value at each x.

    `final` has the statistics of the last values, which `stoker results --group` shows.
    """

    label: str
    value: object  # of the parameter; a list for several parameters
    runs: int
    mean: Curve
    low: Curve
    high: Curve
    final: Group


# -- one curve ------------------------------------------------------------------------------------


def reduced(curve: Curve, count: int) -> Curve:
    """At most `count` points of a curve (but at least 4), with the first, the last and all spikes.

    Of each bucket the smallest and the largest value are kept, or NaN if it has no other value.

    >>> reduced(Curve(array("d", range(9)), array("d", [0, 1, 5, 1, 0, -3, 0, 0, 2])), 4).xs
    array('d', [0.0, 2.0, 5.0, 8.0])
    """
    xs, ys = curve
    count = max(4, count)
    if len(xs) <= count:
        return curve
    has_gaps = any(map(math.isnan, ys))
    inner, buckets = len(xs) - 2, (count - 2) // 2
    kept = [0]
    for number in range(buckets):
        begin = 1 + number * inner // buckets
        bucket = ys[begin : 1 + (number + 1) * inner // buckets]
        real = [y for y in bucket if not math.isnan(y)] if has_gaps else bucket
        ends = {bucket.index(min(real)), bucket.index(max(real))} if real else {0}
        kept += [begin + end for end in sorted(ends)]
    kept.append(len(xs) - 1)
    return Curve(array("d", map(xs.__getitem__, kept)), array("d", map(ys.__getitem__, kept)))


def over_time(times: array[float], values: array[float], start: float | None) -> Curve:
    """Values over seconds since `start`, or since the first report if that was earlier or `start`
    is not known. Values without a time are left out."""
    if times and math.isfinite(times[0]) and increases(times):  # the usual case
        begin = times[0] if start is None or start > times[0] else start
        return Curve(array("d", [at - begin for at in times]), values)
    timed = [pair for pair in zip(times, values, strict=True) if math.isfinite(pair[0])]
    kept = dict(sorted(timed, key=lambda pair: pair[0]))
    if not kept:
        return Curve(array("d"), array("d"))
    first = min(kept)
    begin = first if start is None or start > first else start
    return Curve(array("d", [at - begin for at in kept]), array("d", kept.values()))


def smooth(values: Sequence[float], weight: float) -> array[float]:
    """The exponential moving average, corrected for its start (debiased) as in TensorBoard.

    `weight`: of the average so far, from 0 (no smoothing) to less than 1. NaN and infinity stay as
    they are and do not count.

    >>> [round(y, 3) for y in smooth([1.0, 2.0, math.nan, 4.0], 0.5)]
    [1.0, 1.667, nan, 3.0]
    """
    if not 0 <= weight < 1:
        raise ValueError(f"the weight {weight} is not in [0, 1)")
    average, rest = 0.0, 1.0
    found = array("d")
    for value in values:
        if math.isfinite(value):
            average = weight * average + (1 - weight) * value
            rest *= weight
            found.append(average / (1 - rest))
        else:
            found.append(value)
    return found


def smoothed(curve: Curve, weight: float) -> Curve:
    return Curve(curve.xs, smooth(curve.ys, weight)) if weight else curve


# -- many curves ----------------------------------------------------------------------------------


def ranks(results: Sequence[float | None], goal: str | None) -> list[float | None]:
    """The rank of each run by its last value: 0 for the best, 1 for the worst.

    Equal values have the same rank; runs without a finite value have none, and without a goal no
    run has one.

    >>> ranks([0.5, None, 0.1, 0.9], "min")
    [0.5, None, 0.0, 1.0]
    """
    if goal is None:
        return [None] * len(results)
    sign = table.direction(goal)
    scores = [
        None if value is None or not math.isfinite(value) else sign * value for value in results
    ]
    ordered = sorted(score for score in scores if score is not None)
    most = max(1, len(ordered) - 1)
    return [None if score is None else bisect_left(ordered, score) / most for score in scores]


def group_curves(
    rows: Sequence[Row],
    by: Sequence[str],
    metric: str,
    curves: Sequence[Curve | None],
    weight: float = 0.0,
    goal: str | None = "min",
) -> tuple[list[Band], int]:
    """Group runs that are equal in the columns `by`. `curves` has one curve for each row, or None.

    Returns at most MAX_BANDS groups, sorted by their mean last value, the best first (without a
    goal, in the order of the rows), and the number of all groups.

    The mean and the band are smoothed after averaging. Raises UsageError for an unknown column.
    """
    known = Columns(rows)
    readers = [known.reader(name) for name in by]
    members: dict[tuple[object, ...], list[int]] = {}
    for place, row in enumerate(rows):
        members.setdefault(tuple(table.identity(read(row)) for read in readers), []).append(place)
    finals = table.group(rows, by, f"metric.{metric}", known)
    pairs = list(zip(finals, members.values(), strict=True))
    if goal is not None:
        sign = table.direction(goal)
        pairs.sort(key=lambda pair: _order(pair[0].mean, sign))
    bands: list[Band] = []
    for final, places in pairs:
        found = [curve for curve in (curves[place] for place in places) if curve is not None]
        found = [curve for curve in found if curve.xs]
        if not found or len(bands) == MAX_BANDS:
            continue
        values = list(final.values.values())
        mean, low, high = (smoothed(part, weight) for part in average(found))
        bands.append(
            Band(
                label=", ".join(f"{key}={short(value)}" for key, value in final.values.items()),
                value=values[0] if len(values) == 1 else values,
                runs=len(found),
                mean=mean,
                low=low,
                high=high,
                final=final,
            )
        )
    return bands, len(finals)


def _order(mean: float | None, sign: int) -> float:
    return math.inf if mean is None or mean != mean else sign * mean


def average(curves: Sequence[Curve]) -> tuple[Curve, Curve, Curve]:
    """Mean, minimum and maximum of curves at each x.

    A curve counts from its first to its last x. If the curves have different x values, they are
    interpolated between two neighbours; NaN does not count.
    """
    first = curves[0].xs
    if len(first) <= MAX_GRID and all(curve.xs == first for curve in curves):
        xs, columns = first, zip(*(curve.ys for curve in curves), strict=True)
    else:
        xs = _grid(curves)
        columns = zip(*(_values_at(curve, xs) for curve in curves), strict=True)
    means, lows, highs = array("d"), array("d"), array("d")
    count = len(curves)
    for column in columns:
        total = _sum(column)
        if total == total:
            means.append(total / count)
            lows.append(min(column))
            highs.append(max(column))
            continue
        real = [value for value in column if value == value]
        means.append(_sum(real) / len(real) if real else math.nan)
        lows.append(min(real, default=math.nan))
        highs.append(max(real, default=math.nan))
    return Curve(xs, means), Curve(xs, lows), Curve(xs, highs)


def _sum(values: Sequence[float]) -> float:
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # the sum exceeds the largest float, or inf - inf
        return math.nan if any(value != value for value in values) else sum(values)


def _grid(curves: Sequence[Curve]) -> array[float]:
    """All x values of the curves, or evenly spaced ones if there are too many."""
    found: set[float] = set()
    for curve in curves:
        found.update(curve.xs)
        if len(found) > MAX_GRID:
            break
    else:
        return array("d", sorted(found))
    low = min(curve.xs[0] for curve in curves)
    high = max(curve.xs[-1] for curve in curves)
    inner = (low + (high - low) * n / (EVEN_GRID - 1) for n in range(EVEN_GRID - 1))
    return array("d", (*inner, high))


def _values_at(curve: Curve, grid: array[float]) -> array[float]:
    """The values of a curve at other x values, by linear interpolation; NaN outside its range."""
    xs, ys = curve
    if grid[: len(xs)] == xs:  # a run that ended earlier than others
        return ys + array("d", [math.nan]) * (len(grid) - len(xs))
    found = array("d", [math.nan]) * len(grid)
    at, last = 0, len(xs) - 1
    for place in range(bisect_left(grid, xs[0]), len(grid)):
        x = grid[place]
        if x > xs[last]:
            break
        while xs[at] < x:
            at += 1
        if xs[at] == x:
            found[place] = ys[at]
        else:
            part = (x - xs[at - 1]) / (xs[at] - xs[at - 1])
            found[place] = ys[at - 1] * (1 - part) + ys[at] * part
    return found


def thin(count: int, points: int) -> Callable[[Curve], Curve]:
    """A function that reduces curves of `count` values to at most `points` of them, evenly, with
    the first and the last. The parts of a band need the same x values."""
    if count <= points:
        return lambda curve: curve
    places = sorted({round(n * (count - 1) / (points - 1)) for n in range(points)})
    return lambda curve: Curve(
        array("d", [curve.xs[place] for place in places]),
        array("d", [curve.ys[place] for place in places]),
    )
