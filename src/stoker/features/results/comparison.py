"""Compare runs: one line for each property, one value for each run. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stoker.features.results.table import identity, number, ranked
from stoker.record import Record


class Compared(Record):
    """A property of runs. None: the run does not have it."""

    name: str
    values: list[object]

    @property
    def differs(self) -> bool:
        """Whether the runs differ; 1 equals 1.0, and a missing value differs from any other."""
        return len({identity(value) for value in self.values}) > 1


def compared(runs: Sequence[dict[str, object]]) -> list[Compared]:
    """The properties of runs, in the order in which they first occur."""
    names = dict.fromkeys(name for run in runs for name in run)
    return [Compared(name, [run.get(name) for run in runs]) for name in names]


def differing(lines: Iterable[Compared]) -> list[Compared]:
    return [line for line in lines if line.differs]


def best_of(values: Sequence[object], goal: str) -> int | None:
    """The position of the best value; None unless two runs have values that differ."""
    known = [place for place, value in enumerate(values) if number(value) is not None]
    if len({values[place] for place in known}) < 2:
        return None
    return ranked(known, [values[place] for place in known], goal)[0]
