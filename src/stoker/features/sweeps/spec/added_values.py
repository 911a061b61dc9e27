"""Add values of parameters, or single points, to the definition of a sweep.

Points that the sweep already has stay the same points: a trial is identified by its values, so the
number and the result of an existing trial do not change.
"""

from __future__ import annotations

from collections.abc import Sequence

from stoker.errors import UsageError
from stoker.features.sweeps.spec.domains import Choices, Domain, choices
from stoker.features.sweeps.spec.search_space import Axis, Space, holds, make_space, order, zipped
from stoker.features.sweeps.spec.spec import ADAPTIVE, MAX_TRIALS, SweepSpec
from stoker.features.sweeps.spec.values import Point, Value, point_key
from stoker.record import Record
from stoker.text.suggestions import nearest

_MAX_LISTED = 10_000  # values of a range that become a list, to which values can be added


class Problem(Record):
    """Why something cannot be done with a sweep, and what can be done instead."""

    reason: str  # continues a sentence that begins with the sweep: "it ..."
    hint: str


def extend_problem(given: SweepSpec) -> Problem | None:
    """Why the sweep cannot have more trials of its method; None if it can."""
    if given.trials is None and given.method in ADAPTIVE:
        return Problem("has no limit on trials", "its search goes on until you stop it")
    if given.trials is None:
        return Problem(
            "already runs every point",
            f"add values to it: stoker sweep add {given.name} {_example(given)}",
        )
    points = given.space.size.points
    if points is not None and points <= (given.total_trials or 0):
        return Problem(
            f"already runs all {points} points of its space",
            f"add a point to it: stoker sweep add --point {given.name} {_example(given)}",
        )
    if (given.total_trials or 0) >= MAX_TRIALS:
        return Problem(
            f"has {MAX_TRIALS:,} trials, which is the limit", f"clone it: {_clone(given)}"
        )
    return None


def values_problem(given: SweepSpec) -> Problem | None:
    """Why values of parameters cannot be added to the sweep; None if they can."""
    if given.method in ADAPTIVE:
        return Problem(
            f"chooses its values by {given.method}",
            f"add one point with --point, or clone it with other values: {_clone(given)}",
        )
    if given.trials is not None:
        return Problem(
            f"runs {given.total_trials} sampled trials, not every point",
            f"add one point with --point, or clone it with other values: {_clone(given)}",
        )
    return None


def _example(given: SweepSpec) -> str:
    return " ".join(f"{name}=..." for name in given.space.names[:1])


def _clone(given: SweepSpec) -> str:
    return f"stoker sweep clone {given.name}"


def with_values(given: SweepSpec, added: Sequence[Axis]) -> SweepSpec:
    """Return the sweep with more values of its parameters; it then runs every combination.

    Raises UsageError for a parameter that the sweep does not have, and for too many points.
    """
    space = given.space
    for axis in added:
        space = _with_axis(space, axis)
    space.check_enumerable()
    return given._replace(space=space)


def with_point(given: SweepSpec, added: Sequence[Axis]) -> SweepSpec:
    """Return the sweep with one more point, which has a value for each parameter."""
    point = make_point(given.space, added)
    if point_key(point) in map(point_key, given.points):
        return given
    # A search counts all trials: without one more, the point would take the place of a trial.
    more = given.more + (given.method in ADAPTIVE and given.trials is not None)
    return given._replace(points=(*given.points, point), more=more)


def make_point(space: Space, added: Sequence[Axis]) -> Point:
    """The point with these values. Raises UsageError if one is missing, unknown or not single."""
    chosen: dict[str, Value] = {}
    for axis in added:
        if axis.size != 1:
            raise UsageError(
                f"a point has one value of `{axis.names[0]}`, not {axis.size or 'a range'}",
                "add several values of a parameter without --point",
            )
        for name in axis.names:
            _check_known(space, name)
        chosen.update(zip(axis.names, axis.values(0), strict=True))
    problem: UsageError | None = None
    for grid in space.grids:
        try:
            return _point_of(space, grid, chosen)
        except UsageError as error:
            problem = problem or error
    assert problem is not None
    raise problem


def _point_of(space: Space, grid: tuple[Axis, ...], chosen: dict[str, Value]) -> Point:
    point: Point = dict(space.constants) | chosen
    for index in order(grid):
        axis = grid[index]
        is_used = holds(axis, point)
        for name in axis.names:
            if is_used and name not in chosen:
                raise UsageError(
                    f"the point has no value of `{name}`",
                    f"give one for each parameter: {' '.join(f'{n}=...' for n in space.names)}",
                )
            if not is_used and name in chosen:
                raise UsageError(
                    f"the point has a value of `{name}`, which is used only if {axis.when}",
                    f"remove {name}=...",
                )
    return {name: point[name] for name in space.names if name in point}


def _with_axis(space: Space, added: Axis) -> Space:
    """The space with the values of one parameter, or of several zipped ones."""
    names = set(added.names)
    for name in added.names:
        _check_known(space, name)
    if added.size is None:
        raise UsageError(
            f"`{added.names[0]}` would have infinitely many values, so a grid cannot list them",
            "add values: lr=0.1,0.01",
        )
    for number, grid in enumerate(space.grids):
        for place, axis in enumerate(grid):
            if not names & set(axis.names):
                continue
            if names != set(axis.names):
                row = ",".join("..." for _ in axis.names)
                raise UsageError(
                    f"`{', '.join(axis.names)}` have values together",
                    f"write {','.join(axis.names)}=zip(({row}))",
                )
            changed = (*grid[:place], _joined(axis, added), *grid[place + 1 :])
            grids = (*space.grids[:number], changed, *space.grids[number + 1 :])
            return make_space(grids, space.constants)
    return _without_constant(space, added)


def _without_constant(space: Space, added: Axis) -> Space:
    """The space in which a constant has become a parameter with further values."""
    if len(added.names) > 1:
        raise UsageError(
            f"`{', '.join(added.names)}` have no values together", "add the values one by one"
        )
    (name,) = added.names
    alone = Axis((name,), (choices((dict(space.constants)[name],)),))
    grids = [(*grid, alone) for grid in space.grids]
    grids[0] = (*space.grids[0], _joined(alone, added))
    return make_space(grids, [one for one in space.constants if one[0] != name])


def _joined(axis: Axis, added: Axis) -> Axis:
    """The axis with the values of another one of the same names; equal values count once."""
    new = [added.domains[added.names.index(name)] for name in axis.names]
    if len(axis.names) == 1:
        return axis._replace(domains=(_with_choices(axis.domains[0], new[0]),))
    rows = [
        Choices(_listed(old) + _listed(one)) for old, one in zip(axis.domains, new, strict=True)
    ]
    return zipped(axis.names, rows, axis.when)


def _with_choices(domain: Domain, added: Domain) -> Domain:
    if getattr(domain, "weights", ()):
        raise UsageError(
            "the values have probabilities, so the probability of another value is unknown",
            "clone the sweep with other values",
        )
    old, new = _listed(domain), _listed(added)
    return choices(old + new)._replace(merged=getattr(domain, "merged", ()))


def _listed(domain: Domain) -> tuple[Value, ...]:
    if isinstance(domain, Choices):
        return domain.values
    size = domain.size
    if size is None or size > _MAX_LISTED:
        many = "infinitely many" if size is None else f"{size:,}"
        raise UsageError(
            f"values cannot be added to {many} others",
            f"the limit is {_MAX_LISTED:,}; clone the sweep with other values",
        )
    return tuple(domain.value(index) for index in range(size))


def _check_known(space: Space, name: str) -> None:
    if name in space.names:
        return
    near = nearest(name, space.names)
    hint = (
        f"did you mean `{near}`?"
        if near
        else f"its parameters: {', '.join(space.names)}; for another one, clone the sweep"
    )
    raise UsageError(f"the sweep has no parameter `{name}`", hint)
