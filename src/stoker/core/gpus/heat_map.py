"""Mean use of GPUs in equal parts of a time, for a heat map.

>>> column_means([(0.0, 10.0), (4.0, 30.0), (12.0, 50.0)], since=0.0, until=20.0, columns=4)
[20.0, None, 50.0, None]
"""

from __future__ import annotations

from collections.abc import Iterable


def column_means(
    points: Iterable[tuple[float, float]], since: float, until: float, columns: int
) -> list[float | None]:
    """Return the mean value of each of `columns` parts; None where nothing was measured."""
    sums = [0.0] * columns
    counts = [0] * columns
    width = (until - since) / columns
    for at, value in points:
        place = int((at - since) // width)
        if 0 <= place < columns:
            sums[place] += value
            counts[place] += 1
    return [total / count if count else None for total, count in zip(sums, counts, strict=True)]


def mean_of(means: Iterable[float | None]) -> float | None:
    """The mean of the known values; None if there is none."""
    known = [value for value in means if value is not None]
    return sum(known) / len(known) if known else None
