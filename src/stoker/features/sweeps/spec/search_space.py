"""The space of a sweep: a union of grids, each a product of axes, some with conditions.

Points are numbered and computed on demand; the last axis varies fastest. A parameter whose
condition is false is left out of the point, and points that are equal afterwards count once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from stoker.errors import UsageError
from stoker.features.sweeps.spec import domains
from stoker.features.sweeps.spec.domains import Choices, Domain
from stoker.features.sweeps.spec.value_syntax import check_name
from stoker.features.sweeps.spec.values import Point, Value, key, point_key
from stoker.record import Record
from stoker.text.filters.expressions import Expression

MAX_GRID_SIZE = 1_000_000


class Axis(Record):
    """One parameter, or several zipped parameters with equally many values."""

    names: tuple[str, ...]
    domains: tuple[Domain, ...]
    when: str | None = None

    @property
    def size(self) -> int | None:
        return self.domains[0].size

    def values(self, index: int) -> tuple[Value, ...]:
        return tuple(domain.value(index) for domain in self.domains)

    def at(self, u: float) -> tuple[Value, ...]:
        if len(self.domains) == 1:
            return (self.domains[0].at(u),)
        assert self.size is not None
        return self.values(min(int(u * self.size), self.size - 1))


class Size(Record):
    """The number of points; `points` is None if there are infinitely many."""

    points: int | None
    is_exact: bool

    def __str__(self) -> str:
        if self.points is None:
            return "infinitely many"
        return f"{self.points:,}" if self.is_exact else f"up to {self.points:,}"


class Space(Record):
    grids: tuple[tuple[Axis, ...], ...]  # their union
    constants: tuple[tuple[str, Value], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all constants and parameters, in order."""
        found = [name for name, _ in self.constants]
        found += [name for grid in self.grids for axis in grid for name in axis.names]
        return tuple(dict.fromkeys(found))

    @property
    def size(self) -> Size:
        counts = [self.grid_size(grid) for grid in range(len(self.grids))]
        if any(count is None for count in counts):
            return Size(None, True)
        return Size(sum(count for count in counts if count is not None), not self.may_repeat)

    @property
    def may_repeat(self) -> bool:
        """Whether two numbers may give the same point."""
        return len(self.grids) > 1 or any(axis.when for grid in self.grids for axis in grid)

    @property
    def merged(self) -> list[tuple[str, str]]:
        """Pairs of texts that mean the same value, such as ("1e-3", "0.001")."""
        domains = [domain for grid in self.grids for axis in grid for domain in axis.domains]
        return [pair for domain in domains for pair in getattr(domain, "merged", ())]

    def grid_size(self, grid: int) -> int | None:
        """The number of points of one grid before conditions are applied."""
        sizes = [axis.size for axis in self.grids[grid]]
        if any(size is None for size in sizes):
            return None
        return math.prod(size for size in sizes if size is not None)

    def infinite_name(self) -> str:
        """The name of the first parameter with infinitely many values, which must exist."""
        return next(axis.names[0] for grid in self.grids for axis in grid if axis.size is None)

    def check_enumerable(self) -> int:
        """Return the number of points; raises UsageError if they cannot all be enumerated."""
        count = self.size.points
        if count is None:
            raise UsageError(
                f"`{self.infinite_name()}` has infinitely many values, so a grid cannot list them",
                "sample it: --method random --trials 100",
            )
        if count > MAX_GRID_SIZE:
            raise UsageError(
                f"the grid has {self.size} points; the limit is {MAX_GRID_SIZE:,}",
                "sample it: --method random --trials 100",
            )
        return count

    def number(self, number: int) -> Point:
        """The point with this number, counted over all grids."""
        for grid in range(len(self.grids)):
            count = self.grid_size(grid)
            assert count is not None
            if number < count:
                return self._indexed(grid, number)
            number -= count
        raise IndexError(number)

    def sample(self, grid: int, places: Iterable[float]) -> Point:
        """The point of a grid at these places in [0, 1), one per axis."""
        axes = self.grids[grid]
        return self.make(grid, [axis.at(place) for axis, place in zip(axes, places, strict=True)])

    def make(self, grid: int, chosen: list[tuple[Value, ...]]) -> Point:
        """The constants and chosen values, without parameters whose condition is false."""
        point: Point = dict(self.constants)
        axes = self.grids[grid]
        for axis, values in zip(axes, chosen, strict=True):
            point.update(zip(axis.names, values, strict=True))
        if any(axis.when for axis in axes):
            for index in order(axes):
                if not holds(axes[index], point):
                    for name in axes[index].names:
                        del point[name]
        return point

    def distinct(self, points: Iterable[Point]) -> Iterator[Point]:
        if not self.may_repeat:
            yield from points
            return
        seen: set[str] = set()
        for point in points:
            identity = point_key(point)
            if identity not in seen:
                seen.add(identity)
                yield point

    def to_json(self) -> dict[str, object]:
        return {
            "constants": [[name, value.data, value.text] for name, value in self.constants],
            "grids": [[_axis_to_json(axis) for axis in grid] for grid in self.grids],
        }

    def _indexed(self, grid: int, number: int) -> Point:
        chosen = []
        for axis in reversed(self.grids[grid]):
            assert axis.size is not None
            number, index = divmod(number, axis.size)
            chosen.append(axis.values(index))
        return self.make(grid, chosen[::-1])


def make_space(
    grids: Iterable[Iterable[Axis]], constants: Iterable[tuple[str, Value]] = ()
) -> Space:
    """Return a space; raises UsageError for bad names and bad conditions."""
    made = Space(tuple(tuple(grid) for grid in grids), tuple(constants))
    known = made.names
    variables: dict[str, str] = {}
    for name in known:
        check_name(name)
        other = variables.setdefault(variable(name), name)
        if other != name:
            raise UsageError(
                f"`{other}` and `{name}` would set the same variable STOKER_PARAM_{variable(name)}",
                "rename one of them",
            )
    for grid in made.grids:
        names = [name for axis in grid for name in axis.names]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"the parameter `{name}` is given twice")
        for axis in grid:
            if axis.when is not None:
                expression(axis.when).check_names({*known, *map(variable, known)})
        order(grid)
    return made


def axis(name: str, domain: Domain, when: str | None = None) -> Axis:
    return Axis((check_name(name),), (domain,), when)


def zipped(names: Iterable[str], columns: Iterable[Domain], when: str | None = None) -> Axis:
    """Return an axis of parameters that advance together; equal rows count once."""
    names, columns = tuple(map(check_name, names)), tuple(columns)
    sizes = {name: column.size for name, column in zip(names, columns, strict=True)}
    if len(set(sizes.values())) != 1:
        counts = ", ".join(f"{name} has {size}" for name, size in sizes.items())
        raise UsageError(f"zipped parameters need equally many values: {counts}")
    size = columns[0].size
    if size is None:
        raise UsageError(f"`{names[0]}` has infinitely many values and cannot be zipped")
    if size > MAX_GRID_SIZE:
        raise UsageError(f"zip has {size:,} rows; the limit is {MAX_GRID_SIZE:,}")
    rows: dict[str, tuple[Value, ...]] = {}
    for index in range(size):
        row = tuple(column.value(index) for column in columns)
        rows.setdefault(key([value.data for value in row]), row)
    return Axis(names, tuple(Choices(column) for column in zip(*rows.values(), strict=True)), when)


def variable(name: str) -> str:
    """The name as an identifier for variables and conditions: `optimizer.lr` is optimizer_lr."""
    return re.sub(r"[^A-Za-z0-9]", "_", name)


def holds(axis: Axis, point: Point) -> bool:
    """Whether the condition of an axis is true; parameters left out of the point are None."""
    if axis.when is None:
        return True
    data = {name: value.data for name, value in point.items()}
    return expression(axis.when).holds(data | {variable(name): d for name, d in data.items()})


@lru_cache(maxsize=1000)
def expression(text: str) -> Expression:
    return Expression(text)


def order(grid: tuple[Axis, ...]) -> tuple[int, ...]:
    """Indexes of the axes, each after the axes that its condition refers to."""
    return _order(tuple((axis.names, axis.when) for axis in grid))


@lru_cache(maxsize=100)
def _order(grid: tuple[tuple[tuple[str, ...], str | None], ...]) -> tuple[int, ...]:
    owner = {variable(name): i for i, (names, _) in enumerate(grid) for name in names}
    done: list[int] = []
    while len(done) < len(grid):
        ready = [
            index
            for index, (_, when) in enumerate(grid)
            if index not in done
            and all(
                owner.get(variable(name), -1) in (-1, *done)
                for name in (expression(when).names if when else ())
            )
        ]
        if not ready:
            left = next(names for index, (names, _) in enumerate(grid) if index not in done)
            raise UsageError(f"the condition of `{left[0]}` depends on itself")
        done.append(ready[0])
    return tuple(done)


def from_json(stored: dict[str, object]) -> Space:
    constants, grids = stored["constants"], stored["grids"]
    assert isinstance(constants, list) and isinstance(grids, list)
    return Space(
        tuple(tuple(_axis_from_json(axis) for axis in grid) for grid in grids),
        tuple((name, Value(data, text)) for name, data, text in constants),
    )


def _axis_to_json(axis: Axis) -> dict[str, object]:
    made = [domains.to_json(domain) for domain in axis.domains]
    return {"names": list(axis.names), "domains": made, "when": axis.when}


def _axis_from_json(stored: dict[str, object]) -> Axis:
    names, made, when = stored["names"], stored["domains"], stored["when"]
    assert isinstance(names, list) and isinstance(made, list)
    assert when is None or isinstance(when, str)
    return Axis(tuple(names), tuple(domains.from_json(domain) for domain in made), when)
