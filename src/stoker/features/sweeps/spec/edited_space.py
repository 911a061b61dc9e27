"""The space of a cloned sweep: that of the original, with the parameters that were edited."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from stoker.features.sweeps.spec.search_space import Axis, Space, make_space
from stoker.features.sweeps.spec.value_text import axis_key


def edited_space(
    space: Space, edited: Sequence[Axis], kept: Collection[str] | None = None
) -> Space:
    """Return the space with `edited` parameters in place of those of the same names.

    Other parameters, conditions and [[include]] tables stay. `kept` has the keys (`axis_key`) of
    the parameters that stay besides the edited ones; None: all. Raises UsageError as `make_space`.
    """
    names = {name for axis in edited for name in axis.names}
    by_names = {frozenset(axis.names): axis for axis in edited}
    axes: list[Axis] = []
    for axis in space.grids[0]:
        new = by_names.pop(frozenset(axis.names), None)
        if new is not None:
            axes.append(new._replace(when=new.when or axis.when))
        elif not names & set(axis.names) and (kept is None or axis_key(axis) in kept):
            axes.append(axis)
    constants = [
        (name, value)
        for name, value in space.constants
        if name not in names and (kept is None or name in kept)
    ]
    return make_space([[*axes, *by_names.values()], *space.grids[1:]], constants)
