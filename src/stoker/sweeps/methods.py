"""From a space to points: grid, shuffled, random and lhs. The same seed gives the same points.

Asking for more points than before gives the same first ones, so a sweep can be extended. A Latin
hypercube is laid out for the number of trials that the sweep was made with; what is asked for
beyond that is random.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count as counting
from itertools import islice

from stoker.errors import UsageError
from stoker.sweeps.search_space import LARGEST_GRID, Space
from stoker.sweeps.spec import ADAPTIVE, SweepSpec
from stoker.sweeps.values import Point, point_key

_MISSES = 10_000  # so many known points in a row: there are no others, or hardly any


def points(spec: SweepSpec, count: int | None = None) -> Iterator[Point]:
    """The points of a sweep: `count` of them, else as many as it has trials, else all."""
    if spec.method in ADAPTIVE:
        raise UsageError(f"{spec.method} chooses one trial after another", "ask its searcher")
    wanted = spec.wanted if count is None else count
    if wanted is None and spec.method == "grid":
        spec.space.check_enumerable()
    if wanted is None and spec.method in ("random", "lhs") and spec.space.size.points is None:
        raise UsageError(f"{spec.method} search has no end here", "say how many: --trials 100")
    return islice(_all(spec), wanted)


def _all(spec: SweepSpec) -> Iterator[Point]:
    space = spec.space
    if spec.method == "grid":
        return space.distinct(_numbered(space, None))
    if spec.seed is None:
        raise ValueError("a sweep by chance needs its seed: use SweepSpec.seeded")
    if spec.method == "shuffled":
        space.check_enumerable()
        return space.distinct(_numbered(space, spec.seed))
    if spec.method == "lhs" and spec.trials is not None:
        return _hypercube(space, spec.seed, spec.trials)
    return sampled(space, spec.seed)


def sampled(space: Space, seed: int) -> Iterator[Point]:
    """Distinct points by chance, until there are no more."""
    size = space.size.points
    has_weights = any(
        getattr(domain, "weights", ()) for g in space.grids for axis in g for domain in axis.domains
    )
    if size is not None and size <= LARGEST_GRID and not has_weights:
        return space.distinct(_numbered(space, seed))
    return _fresh(_drawn(space, random.Random(seed)), set())


def _numbered(space: Space, seed: int | None) -> Iterator[Point]:
    """All points in order, or shuffled exactly as random.shuffle would a list of them."""
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
    """range(end), which cannot be longer than an address; a space can."""
    for number in counting():
        if number >= end:
            return
        yield number


def _drawn(space: Space, chance: random.Random) -> Iterator[Point]:
    sizes = [space.grid_size(grid) for grid in range(len(space.grids))]
    shares = [float(min(size or 0, 10**300)) for size in sizes]
    if None in sizes:  # a part without end has no share; let all be as likely
        shares = [1.0] * len(sizes)
    while True:
        grid = chance.choices(range(len(sizes)), shares)[0] if len(sizes) > 1 else 0
        yield space.sample(grid, [chance.random() for _ in space.grids[grid]])


def _fresh(drawn: Iterator[Point], seen: set[str]) -> Iterator[Point]:
    misses = 0
    for point in drawn:
        mark = point_key(point)
        if mark in seen:
            misses += 1
            if misses > _MISSES:
                return
            continue
        misses = 0
        seen.add(mark)
        yield point


def _hypercube(space: Space, seed: int, trials: int) -> Iterator[Point]:
    """Each axis is cut into as many slices as there are trials, and each slice is hit once."""
    if len(space.grids) > 1:
        raise UsageError("a Latin hypercube needs one grid, not a union", "use random")
    chance = random.Random(seed)
    slices = []
    for _ in space.grids[0]:
        column = list(range(trials))
        chance.shuffle(column)
        slices.append(column)
    seen: set[str] = set()
    for index in range(trials):
        point = space.sample(0, [(column[index] + chance.random()) / trials for column in slices])
        mark = point_key(point)
        if mark not in seen:
            seen.add(mark)
            yield point
    yield from _fresh(_drawn(space, random.Random(seed + 1)), seen)
