"""Generate the points of a space: grid, shuffled, random and lhs. Equal seeds give equal points.

The first N points do not depend on how many points are requested, so a sweep can be extended. A
Latin hypercube is laid out for the original number of trials; further points are random.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain, islice
from itertools import count as counting

from stoker.errors import UsageError
from stoker.features.sweeps.spec.search_space import MAX_GRID_SIZE, Space
from stoker.features.sweeps.spec.spec import ADAPTIVE, SweepSpec
from stoker.features.sweeps.spec.values import Point, point_key

_MAX_UNCOUNTED = 100  # points that random and lhs list without --trials
_MAX_REPEATS = 10_000  # stop sampling after this many known points in a row


def points(spec: SweepSpec, count: int | None = None) -> Iterator[Point]:
    """Yield `count` points; by default as many as the sweep has trials, or all, and then the single
    points that were added to it, which may be among the others."""
    if spec.method in ADAPTIVE:
        raise UsageError(
            f"{spec.method} chooses trials from the results of earlier ones",
            "start the sweep to see its trials",
        )
    wanted = spec.total_trials if count is None else count
    if wanted is None and spec.method == "grid":
        spec.space.check_enumerable()
    if wanted is None and spec.method in ("random", "lhs") and spec.space.size.points is None:
        name = spec.space.infinite_name()
        how = "the sweep samples it at random and" if spec.method == "random" else "method lhs"
        raise UsageError(
            f"`{name}` is continuous, so {how} needs --trials N", "for example: --trials 100"
        )
    size = spec.space.size
    if wanted is None and spec.method in ("random", "lhs") and (size.points or 0) > _MAX_UNCOUNTED:
        raise UsageError(
            f"method {spec.method} needs --trials N: the space has {size} points",
            "for example: --trials 100; for all points: --method shuffled",
            "trials",
        )
    found = islice(_all(spec), wanted)
    return chain(found, spec.points) if count is None else found


def _all(spec: SweepSpec) -> Iterator[Point]:
    space = spec.space
    if spec.method == "grid":
        return space.distinct(_numbered(space, None))
    if spec.seed is None:
        raise ValueError("a random method needs a seed: use SweepSpec.seeded")
    if spec.method == "shuffled":
        space.check_enumerable()
        return space.distinct(_numbered(space, spec.seed))
    if spec.method == "lhs" and spec.trials is not None:
        return _hypercube(space, spec.seed, spec.trials)
    return sampled(space, spec.seed)


def sampled(space: Space, seed: int) -> Iterator[Point]:
    """Yield distinct random points until there are no more."""
    size = space.size.points
    has_weights = any(
        getattr(domain, "weights", ()) for g in space.grids for axis in g for domain in axis.domains
    )
    if size is not None and size <= MAX_GRID_SIZE and not has_weights:
        return space.distinct(_numbered(space, seed))
    return _unseen(_drawn(space, random.Random(seed)), set())


def _numbered(space: Space, seed: int | None) -> Iterator[Point]:
    """All points in order; with a seed, in the order that random.shuffle gives a list of them."""
    if seed is None:
        sizes = [space.grid_size(grid) for grid in range(len(space.grids))]
        if any(size is None for size in sizes):
            space.check_enumerable()
        numbers = _count_up(sum(size for size in sizes if size is not None))
    else:
        order = list(range(space.check_enumerable()))
        random.Random(seed).shuffle(order)
        numbers = iter(order)
    return (space.number(number) for number in numbers)


def _count_up(end: int) -> Iterator[int]:
    """Like range(end), but `end` may exceed sys.maxsize."""
    for number in counting():
        if number >= end:
            return
        yield number


def _drawn(space: Space, rng: random.Random) -> Iterator[Point]:
    """Yield random points without end; they may repeat."""
    sizes = [space.grid_size(grid) for grid in range(len(space.grids))]
    weights = [float(min(size or 0, 10**300)) for size in sizes]
    if None in sizes:  # an infinite grid has no size to weigh by
        weights = [1.0] * len(sizes)
    while True:
        grid = rng.choices(range(len(sizes)), weights)[0] if len(sizes) > 1 else 0
        yield space.sample(grid, [rng.random() for _ in space.grids[grid]])


def _unseen(drawn: Iterator[Point], seen: set[str]) -> Iterator[Point]:
    """Skip the points in `seen`, and end after _MAX_REPEATS of them in a row."""
    repeats = 0
    for point in drawn:
        identity = point_key(point)
        if identity in seen:
            repeats += 1
            if repeats > _MAX_REPEATS:
                return
            continue
        repeats = 0
        seen.add(identity)
        yield point


def _hypercube(space: Space, seed: int, trials: int) -> Iterator[Point]:
    """Cut each axis into `trials` slices and sample each slice once."""
    if len(space.grids) > 1:
        raise UsageError("lhs cannot sample a union of grids (include)", "use --method random")
    rng = random.Random(seed)
    slices = []
    for _ in space.grids[0]:
        column = list(range(trials))
        rng.shuffle(column)
        slices.append(column)
    seen: set[str] = set()
    for index in range(trials):
        point = space.sample(0, [(column[index] + rng.random()) / trials for column in slices])
        identity = point_key(point)
        if identity not in seen:
            seen.add(identity)
            yield point
    yield from _unseen(_drawn(space, random.Random(seed + 1)), seen)
