"""A report of a sweep as data, and its text as blocks for report_markdown.py and report_html.py.

All texts are untrusted: names, notes, values and commands come from users and their programs. Each
renderer escapes them in its own way.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker.features.results.export import short
from stoker.features.results.figure import Figure
from stoker.features.results.importance import Influence
from stoker.features.results.note_markup import (
    BOLD,
    CODE,
    EMPHASIS,
    ITEM,
    PARAGRAPH,
    TEXT,
    Part,
    Span,
    parse_note,
)
from stoker.features.results.table import Row, Table, varying
from stoker.record import Record
from stoker.text.plurals import plural
from stoker.text.terminal import printable

_SEED_NAMES = ("seed", "random_seed", "rng", "trial_seed", "fold", "replica", "repeat")
_MOST_CHARS = 300  # of one text in a table
# Kinds of parts that notes do not have.
TITLE, SECTION, COMMAND = "title", "section", "command"


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
    provenance: tuple[Provenance, ...]
    steps: tuple[Step, ...]
    made: str  # when, and by which version
    # Of the metric:
    best: Table = Table((), [])
    best_of: str = ""  # how the best trials are sorted, or why there are none; a sentence or empty
    groups: Table | None = None
    group_of: str = ""
    figures: tuple[Figure, ...] = ()
    importance: tuple[Influence, ...] = ()
    explanation: str = ""  # of the importance, in one sentence


class Quote(Record):
    """A note, set apart from the text of the report."""

    parts: list[Part]


Block = Part | Quote | Table | Figure


def blocks(report: Report) -> Iterator[Block]:
    """The whole report in order."""
    yield _part(TITLE, "Sweep ", Span(CODE, report.name))
    counts = [plural(report.total, "trial"), *(f"{n} {name}" for name, n in report.trials.items())]
    status: list[str | Span] = [Span(BOLD, report.state), f", {', '.join(counts)}"]
    if report.stopped:
        status += ["; stopped: ", Span(CODE, report.stopped)]
    for number, tag in enumerate(report.tags):
        status += [", " if number else "; tags: ", Span(CODE, tag)]
    yield _part(PARAGRAPH, *status)
    if report.note:
        yield Quote(parse_note(report.note))
    yield Table(("", ""), list(report.facts))
    if report.failures:
        yield _part(SECTION, "Failures")
    for failure in report.failures:
        log = () if failure.job is None else (" (", Span(CODE, f"stoker log {failure.job}"), ")")
        yield _part(ITEM, f"{failure.size} ", Span(CODE, failure.result), *log)
    yield _part(SECTION, "Best trials")
    yield _part(PARAGRAPH, report.best_of or "No trial has a result yet.")
    if report.best.lines:
        yield report.best
    if report.groups is not None:
        yield _part(SECTION, "Groups")
        yield _part(PARAGRAPH, f"Over {report.group_of}.")
        yield report.groups
    if report.figures:
        yield _part(SECTION, "Curves and parameters")
    yield from report.figures
    if report.importance:
        yield _part(SECTION, "Parameter importance")
        yield _part(PARAGRAPH, _sentence(report.explanation))
        lines = [(one.name, f"{one.score:.2f}", one.n) for one in report.importance]
        yield Table(("parameter", "score", "trials"), list(lines))
    yield _part(SECTION, "Provenance")
    for origin in report.provenance:
        count = f" ({plural(origin.trials, 'trial')})"
        yield _part(ITEM, f"{origin.label}: ", Span(CODE, origin.text), count)
    if not report.provenance:
        text = "Nothing was recorded: no trial has started, or their jobs were removed."
        yield _part(PARAGRAPH, text)
    yield _part(SECTION, "Repeat")
    for step in report.steps:
        yield _part(PARAGRAPH, _sentence(step.text))
        yield Part(COMMAND, (Span(CODE, step.command),))
    yield _part(PARAGRAPH, Span(EMPHASIS, report.made))


def _part(kind: str, *words: str | Span) -> Part:
    spans = (Span(TEXT, printable(word)) if isinstance(word, str) else word for word in words)
    return Part(kind, tuple(spans))


def _sentence(text: str) -> str:
    return text if not text or text.endswith(".") else f"{text}."


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
