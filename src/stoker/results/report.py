"""A report of a sweep as data. report_markdown.py and report_html.py render it.

All texts are untrusted: names, notes, values and commands come from users and their programs. Each
renderer escapes them in its own way.
"""

from __future__ import annotations

from stoker.core.record import Record
from stoker.results.export import short
from stoker.results.figure import Figure
from stoker.results.importance import Influence
from stoker.results.table import Row, Table, varying

_SEED_NAMES = ("seed", "random_seed", "rng", "trial_seed", "fold", "replica", "repeat")
_MOST_CHARS = 300  # of one text in a table


class FailedAlike(Record):
    size: int
    result: str  # how they failed, in the words of `stoker ls`
    job: int | None  # the newest of them


class Provenance(Record):
    """One kind of origin of the trials: their code, or the machine they ran on."""

    label: str
    text: str
    trials: int


class Step(Record):
    """A command that repeats something, and what it does."""

    text: str
    command: str


class Report(Record):
    name: str
    note: str
    tags: tuple[str, ...]
    state: str
    stopped: str | None
    trials: dict[str, int]  # by state
    total: int
    facts: tuple[tuple[str, str], ...]  # command, folder, method, metric
    failures: tuple[FailedAlike, ...]
    best: Table
    best_of: str  # how the best trials are sorted, or why there are none; a sentence or empty
    groups: Table | None
    group_of: str
    figures: tuple[Figure, ...]
    importance: tuple[Influence, ...]
    explanation: str  # of the importance, in one sentence
    provenance: tuple[Provenance, ...]
    steps: tuple[Step, ...]
    made: str  # when, and by which version


def seed_like(name: str) -> bool:
    """Whether a parameter only repeats a trial, like a random seed.

    >>> seed_like("seed"), seed_like("data_seed"), seed_like("speed")
    (True, True, False)
    """
    lower = name.lower()
    return lower in _SEED_NAMES or lower.endswith(("_seed", "-seed", ".seed"))


def groups_over_seeds(rows: list[Row]) -> list[str]:
    """The parameters to group by if some others only repeat trials; empty if none do."""
    names = varying(rows)
    others = [name for name in names if not seed_like(name)]
    return others if others and len(others) < len(names) else []


def shown_cell(value: object) -> str:
    """A value as one line of limited length."""
    text = " ".join(short(value).split())
    return text if len(text) <= _MOST_CHARS else text[: _MOST_CHARS - 1] + "…"
