"""How many jobs of one command profile are worth running at once on one GPU.

Jobs that share a GPU slow each other down. Their speeds are measured (steps a second of one job,
by the number of jobs on the GPU), and no more jobs are added where the sum no longer grows.
"""

from __future__ import annotations

from collections.abc import Mapping

# More jobs have to increase the sum of speeds by this part, or they are not worth it.
GAIN = 0.05
# Old measurements count as much as this many new ones: programs change.
_MAX_WEIGHT = 20
_MAX_SHOWN = 3


def update_speed(known: float | None, runs: int, speed: float) -> float:
    """Return the mean speed after one more measurement."""
    if known is None:
        return speed
    return known + (speed - known) / (min(runs, _MAX_WEIGHT) + 1)


def most_together(speeds: Mapping[int, float]) -> int | None:
    """Return how many jobs to run at once at most; None if no limit was found yet.

    That is the smallest number to which no larger one that was measured adds `GAIN`.

    >>> most_together({1: 54.0, 2: 54.0, 4: 43.5, 8: 22.0})
    4
    """
    counts = sorted(speeds)
    for count in counts[:-1]:
        enough = count * speeds[count] * (1 + GAIN)
        if all(more * speeds[more] < enough for more in counts if more > count):
            return count
    return None


def gains(speeds: Mapping[int, float]) -> bool:
    """Whether several jobs at once were measured to be faster than one."""
    alone = speeds.get(1)
    return alone is not None and any(
        count * speed >= alone * (1 + GAIN) for count, speed in speeds.items() if count > 1
    )


def throughput_words(speeds: Mapping[int, float]) -> str | None:
    """Return the throughput of several jobs at once in words; None if it was not measured.

    >>> throughput_words({1: 54.0, 4: 43.5, 8: 22.0})
    '4 of these run at once on one GPU: 3.2 times the throughput; 8: 3.3 times'
    """
    alone = speeds.get(1)
    counts = [count for count in sorted(speeds) if count > 1]
    if not alone or not counts:
        return None
    limit = most_together(speeds)
    shown = set(counts[-_MAX_SHOWN:]) | ({limit} if limit in counts else set())
    first, *rest = [count for count in counts if count in shown]
    words = f"{first} of these run at once on one GPU:"
    words += f" {first * speeds[first] / alone:.1f} times the throughput"
    for count in rest:
        words += f"; {count}: {count * speeds[count] / alone:.1f} times"
    return words
