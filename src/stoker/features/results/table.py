"""Rows of trials: select columns, filter, sort and group them.

Column names are unique. If names clash, the first of `trial job state seconds`, parameters, metrics
and extras keeps the name, and the other gets the prefix `param.`, `metric.` or `extra.`: a
parameter and a metric `lr` are the columns `lr` and `metric.lr`. The prefixed names always work.
`result`, `cause` and `exit` say how a job ended (`job.cause` if a parameter has that name).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn, TypeVar

from stoker.errors import UsageError
from stoker.record import Record
from stoker.text.filters.expressions import HINT as EXPRESSION_HINT
from stoker.text.filters.filter_text import FilterText, unknown_column
from stoker.text.filters.sort_order import directions
from stoker.text.progress.report_line import is_number

T = TypeVar("T")
FIXED = ("trial", "job", "state", "seconds")
ENDS = ("result", "cause", "exit")  # shown only where they are chosen
# Other names for these columns, for hints. `stoker results` shows `seconds` as TIME.
_OTHER_NAMES = {
    "time": "seconds",
    "duration": "seconds",
    "runtime": "seconds",
    "elapsed": "seconds",
    "status": "state",
    "id": "job",
    "number": "trial",
    "job_id": "job",
}


class Row(Record):
    trial: int | None
    job: int | None
    params: dict[str, object]
    metrics: dict[str, object]
    state: str = ""
    seconds: float | None = None
    extra: dict[str, object] = {}  # noqa: RUF012  (records are never modified)
    end: dict[str, object] = {}  # noqa: RUF012  (result, cause and exit of a finished job)


class Group(Record):
    """Statistics of one metric over a group of rows. `sd` is the sample standard deviation."""

    values: dict[str, object]  # of the columns that the rows have in common
    n: int
    mean: float | None
    sd: float | None
    min: float | None
    max: float | None
    missing: int  # rows without the metric, or with NaN
    trials: tuple[int | None, ...]


class Table(Record):
    """Column names, and lines with values in that order."""

    names: tuple[str, ...]
    lines: list[tuple[object, ...]]


# -- columns --------------------------------------------------------------------------------------


class Columns:
    """The columns of some rows, by name."""

    def __init__(self, rows: Sequence[Row], params: Iterable[str] = ()) -> None:
        """`params`: parameters that rows may have, although none of these has."""
        self._places: dict[str, tuple[str, str]] = {name: ("fixed", name) for name in FIXED}
        self._by_place = {place: name for name, place in self._places.items()}
        for kind, names in (
            ("param", [*dict.fromkeys((*_names(row.params for row in rows), *params))]),
            ("metric", _names(row.metrics for row in rows)),
            ("extra", _names(row.extra for row in rows)),
        ):
            for name in names:
                self._add(kind, name)
        for name in ENDS:
            self._add("job", name)

    def _add(self, kind: str, name: str) -> None:
        column = name
        while column in self._places:
            column = f"{kind}.{column}"
        self._places[column] = (kind, name)
        self._by_place[kind, name] = column

    @property
    def names(self) -> list[str]:
        return list(self._places)

    def of(self, kind: str) -> list[str]:
        """Column names of a kind: fixed, param, metric, extra, job (how it ended)."""
        return [column for column, (other, _) in self._places.items() if other == kind]

    def find(self, name: str) -> str:
        """Return the name of the column; raises UsageError with a suggestion."""
        if name in self._places:
            return name
        kind, _, rest = name.partition(".")
        if (kind, rest) in self._by_place:
            return self._by_place[kind, rest]
        _no_column(name, self._places)

    def reader(self, name: str) -> Callable[[Row], object]:
        kind, key = self._places[self.find(name)]
        if kind == "fixed":
            return lambda row: getattr(row, key)
        if kind == "param":
            return lambda row: row.params.get(key)
        if kind == "metric":
            return lambda row: row.metrics.get(key)
        if kind == "job":
            return lambda row: row.end.get(key)
        return lambda row: row.extra.get(key)


def select_columns(rows: Sequence[Row], names: Iterable[str], known: Columns) -> Table:
    """Return a table of these columns. `known` holds the columns of all rows before filtering."""
    found = tuple(known.find(name) for name in names)
    return Table(found, cells(rows, found, known))


def select_from_table(table: Table, names: Iterable[str]) -> Table:
    """Return a table with only these columns."""
    known = _Names(table.names)
    found = tuple(known.find(name) for name in names)
    places = [table.names.index(name) for name in found]
    return Table(found, [tuple(line[place] for place in places) for line in table.lines])


def columns(rows: Sequence[Row], *, constants: bool = False) -> list[str]:
    """The default columns: trial, parameters that vary, metrics, extras, state, seconds, job.

    With `constants`, parameters that are equal in all rows follow those that vary.
    """
    known = Columns(rows)
    params = known.of("param")
    changing = varying(rows)
    constant = [name for name in params if name not in changing] if constants else []
    rest = [*known.of("metric"), *known.of("extra")]
    return ["trial", *changing, *constant, *rest, "state", "seconds", "job"]


def varying(rows: Sequence[Row]) -> list[str]:
    """Columns of the parameters that differ between rows; a missing value counts as a value."""
    known = Columns(rows)
    return [
        name
        for name in known.of("param")
        if len({identity(value) for value in map(known.reader(name), rows)}) > 1
    ]


def cells(
    rows: Sequence[Row], names: Iterable[str], known: Columns | None = None
) -> list[tuple[object, ...]]:
    known = known or Columns(rows)
    readers = [known.reader(name) for name in names]
    return [tuple(read(row) for read in readers) for row in rows]


def numbers(rows: Sequence[Row], name: str) -> list[float | None]:
    """A column as numbers; None for missing, non-numeric and non-finite values."""
    read = Columns(rows).reader(name)
    return [number(read(row)) for row in rows]


def number(value: object) -> float | None:
    return value if is_number(value) and math.isfinite(value) else None


# -- sort, where, best ----------------------------------------------------------------------------


def sort(
    rows: Sequence[Row], key: str, descending: bool = False, known: Columns | None = None
) -> list[Row]:
    """Sort by `val_loss`, `-val_loss`, `val_loss:desc`, or several columns: `opt,-val_loss`.

    Missing values and NaN come last in both directions. Numbers come before text.
    """
    if known is None:
        if not rows:
            return []
        known = Columns(rows)
    result = list(rows)
    for name, reverse in reversed(directions(key, known)):
        read = known.reader(name)
        result = _ordered(result, [read(row) for row in result], reverse != descending)
    return result


def sort_lines(table: Table, key: str) -> Table:
    """Like `sort`, for the lines of a table such as groups."""
    known = _Names(table.names)
    lines = list(table.lines)
    for name, reverse in reversed(directions(key, known)):
        place = table.names.index(name)
        lines = _ordered(lines, [line[place] for line in lines], reverse)
    return table._replace(lines=lines)


def _ordered(items: list[T], values: list[object], reverse: bool) -> list[T]:
    pairs = list(zip(items, values, strict=True))
    present = [pair for pair in pairs if not _is_missing(pair[1])]
    present.sort(key=lambda pair: rank(pair[1]), reverse=reverse)
    absent = [item for item, value in pairs if _is_missing(value)]
    return [item for item, _ in present] + absent


class _Names:
    """The columns of a table, known only by name."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)

    def find(self, name: str) -> str:
        return name if name in self.names else _no_column(name, self.names)


def _no_column(name: str, known: Iterable[str]) -> NoReturn:
    unknown_column(name, known, _OTHER_NAMES)


def where(rows: Sequence[Row], text: str, known: Columns | None = None) -> list[Row]:
    """Return the rows for which the expression is true; names such as `val/loss` need backticks.

    Comparisons with missing values are false. Raises UsageError if the types of a comparison fit
    no row, for example because a number is compared with text.
    """
    typed = FilterText(text)
    if known is None:
        if not rows:
            return []
        known = Columns(rows)
    expression = typed.expression
    readers = {
        name: known.reader(column) for name, column in typed.find_columns(known.find).items()
    }
    found, is_applicable, problem = [], False, None
    for row in rows:
        values = {name: read(row) for name, read in readers.items()}
        type_error = expression.type_error(values)
        if type_error is not None:
            problem = problem or type_error
            continue
        is_applicable = is_applicable or None not in values.values()
        if expression.matches(values):
            found.append(row)
    if problem is not None and not is_applicable:
        raise UsageError(f"`{text}` cannot be applied to any row: {problem}", EXPRESSION_HINT)
    return found


def ranked(items: Sequence[T], values: Iterable[object], goal: str | None) -> list[T]:
    """The items, the best value first; those without a finite number come last.

    Equal ones keep their order; without a goal, all do. Every ranking of trials uses this rule,
    with the last reported value of the metric.
    """
    if goal is None:
        return list(items)
    sign = direction(goal)
    scores = [number(value) for value in values]
    keyed = sorted(
        zip(scores, items, strict=True),
        key=lambda pair: math.inf if pair[0] is None else sign * pair[0],
    )
    return [item for _, item in keyed]


def best_first(
    rows: Sequence[Row], name: str, goal: str | None, known: Columns | None = None
) -> list[Row]:
    """The rows, ranked by a column."""
    if not rows:
        return []
    return ranked(rows, map((known or Columns(rows)).reader(name), rows), goal)


def best(rows: Sequence[Row], name: str, goal: str | None) -> Row | None:
    """Return the row with the best finite number, the first of equals; None without a goal."""
    first = best_first(rows, name, goal)[:1]
    has_value = goal is not None and first and numbers(first, name)[0] is not None
    return first[0] if has_value else None


def direction(goal: str) -> int:
    """1 if small values are better, -1 if large values are."""
    if goal in ("min", "minimize"):
        return 1
    if goal in ("max", "maximize"):
        return -1
    raise UsageError(f"unknown goal `{goal}`", "use min or max")


# -- groups ---------------------------------------------------------------------------------------


def group(
    rows: Sequence[Row], by: Sequence[str], metric: str, known: Columns | None = None
) -> list[Group]:
    """Group rows that are equal in the columns `by`; groups keep the order of the rows."""
    if known is None:
        if not rows:
            return []
        known = Columns(rows)
    read = known.reader(metric)
    by = [known.find(name) for name in by]
    readers = [known.reader(name) for name in by]
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        key = tuple(identity(reader(row)) for reader in readers)
        groups.setdefault(key, []).append(row)
    return [
        _group(
            dict(zip(by, (reader(members[0]) for reader in readers), strict=True)),
            [read(row) for row in members],
            tuple(row.trial for row in members),
        )
        for members in groups.values()
    ]


def grouped(
    rows: Sequence[Row], by: Sequence[str], metric: str, known: Columns | None = None
) -> Table:
    """Return the groups as a table: the columns `by`, then the statistics."""
    known = known or Columns(rows)
    keys = [known.find(name) for name in by]
    names = [*keys]
    for name in ("n", "mean", "sd", "min", "max", "missing"):
        names.append(f"group.{name}" if name in keys else name)
    lines = [
        (*one.values.values(), one.n, one.mean, one.sd, one.min, one.max, one.missing)
        for one in group(rows, by, metric, known)
    ]
    return Table(tuple(names), lines)


def _group(
    values: dict[str, object], measured: list[object], trials: tuple[int | None, ...]
) -> Group:
    found = [value for value in measured if is_number(value) and value == value]
    n = len(found)
    missing = len(measured) - n
    if not found:
        return Group(values, 0, None, None, None, None, missing, trials)
    mean = _sum(found) / n
    # If a value is infinite, the distances from the mean are NaN.
    sd = None
    if n > 1 and math.isfinite(mean):
        sd = math.sqrt(_sum([(value - mean) * (value - mean) for value in found]) / (n - 1))
    return Group(values, n, mean, sd, min(found), max(found), missing, trials)


def _sum(values: list[float]) -> float:
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # sum exceeds the largest float, or inf - inf
        return sum(map(float, values))


# -- values ---------------------------------------------------------------------------------------


def identity(value: object) -> tuple[str, object]:
    """A key that is equal for equal values: the same for 1 and 1.0, but not for 1 and true."""
    if is_number(value):
        return "number", "nan" if value != value else value
    return type(value).__name__, repr(value)


def rank(value: object) -> tuple[int, float, str]:
    """A sort key for values of any type: numbers, then text, then the rest."""
    if isinstance(value, (int, float)):
        return 0, value, ""
    if isinstance(value, str):
        return 1, 0, value
    return 2, 0, json.dumps(value, sort_keys=True, default=str)


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and value != value)


def _names(values: Iterable[dict[str, object]]) -> list[str]:
    return list(dict.fromkeys(name for each in values for name in each))
