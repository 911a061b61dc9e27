"""Rows of trials: which columns they have, filtered, sorted, grouped. Rows in, rows out.

Columns have one name each. A parameter and a metric keep theirs; where two want the same, the
earlier of `trial job state seconds`, parameters, metrics, extras keeps it, and the other is called
`param.…`, `metric.…` or `extra.…`: with a parameter and a metric `lr`, these are `lr` and
`metric.lr`. The long names may always be used.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import NoReturn, TypeVar

from stoker.core.formats.expressions import HINT as EXPRESSION_HINT
from stoker.core.formats.expressions import Expression
from stoker.core.metrics.report_line import is_number
from stoker.core.record import Record
from stoker.errors import UsageError

T = TypeVar("T")
FIXED = ("trial", "job", "state", "seconds")


class Row(Record):
    trial: int | None
    job: int | None
    params: dict[str, object]
    metrics: dict[str, object]
    state: str = ""
    seconds: float | None = None
    extra: dict[str, object] = {}  # noqa: RUF012  (never changed, like every field of a record)


class Group(Record):
    """One metric over rows that are alike. `sd` is that of a sample, so it needs two."""

    values: dict[str, object]  # what is alike
    n: int
    mean: float | None
    sd: float | None
    min: float | None
    max: float | None
    missing: int  # rows without the metric, or with NaN
    trials: tuple[int | None, ...]


class Table(Record):
    """What is shown in the end: a header, and values in its order."""

    names: tuple[str, ...]
    lines: list[tuple[object, ...]]


# -- columns --------------------------------------------------------------------------------------


class Columns:
    """All columns of these rows, by name."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._places: dict[str, tuple[str, str]] = {name: ("fixed", name) for name in FIXED}
        self._by_place = {place: name for name, place in self._places.items()}
        for kind, names in (
            ("param", _names(row.params for row in rows)),
            ("metric", _names(row.metrics for row in rows)),
            ("extra", _names(row.extra for row in rows)),
        ):
            for name in names:
                self._add(kind, name)

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
        """Column names of a kind: fixed, param, metric, extra."""
        return [column for column, (its, _) in self._places.items() if its == kind]

    def find(self, name: str) -> str:
        """The column that is meant, or a UsageError with the nearest."""
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
        return lambda row: row.extra.get(key)


def taken(rows: Sequence[Row], names: Iterable[str], known: Columns) -> Table:
    """These columns of these rows. `known` are those of all rows: a filter hides no column."""
    found = tuple(known.find(name) for name in names)
    return Table(found, cells(rows, found, known))


def chosen_of(table: Table, names: Iterable[str]) -> Table:
    """These columns of a table."""
    known = _Names(table.names)
    found = tuple(known.find(name) for name in names)
    places = [table.names.index(name) for name in found]
    return Table(found, [tuple(line[place] for place in places) for line in table.lines])


def columns(rows: Sequence[Row], *, constants: bool = False) -> list[str]:
    """What to show: the trial, parameters that vary, metrics, extras, then how the job went.

    Parameters that are the same in all rows come after the others, and only when asked for.
    """
    known = Columns(rows)
    params = known.of("param")
    moving = varying(rows)
    still = [name for name in params if name not in moving] if constants else []
    rest = [*known.of("metric"), *known.of("extra")]
    return ["trial", *moving, *still, *rest, "state", "seconds", "job"]


def varying(rows: Sequence[Row]) -> list[str]:
    """Columns of the parameters that are not the same in all rows; absent is a value too."""
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
    """A column as numbers; None for what is missing, no number, or not finite."""
    read = Columns(rows).reader(name)
    return [number(read(row)) for row in rows]


def number(value: object) -> float | None:
    return value if is_number(value) and math.isfinite(value) else None


# -- sort, where, best ----------------------------------------------------------------------------


def sort(
    rows: Sequence[Row], key: str, descending: bool = False, known: Columns | None = None
) -> list[Row]:
    """By `val_loss`, `-val_loss`, `val_loss:desc`, or several: `opt,-val_loss`.

    What is missing or NaN comes last, whichever way round. Numbers come before text.
    """
    if known is None:
        if not rows:
            return []
        known = Columns(rows)
    result = list(rows)
    for name, reverse in reversed(_directions(key, known)):
        read = known.reader(name)
        result = _ordered(result, [read(row) for row in result], reverse != descending)
    return result


def sort_lines(table: Table, key: str) -> Table:
    """The same for what is a table already, such as groups."""
    known = _Names(table.names)
    lines = list(table.lines)
    for name, reverse in reversed(_directions(key, known)):
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
    """Columns that are nothing but names."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)

    def find(self, name: str) -> str:
        return name if name in self.names else _no_column(name, self.names)


def _no_column(name: str, known: Iterable[str]) -> NoReturn:
    near = get_close_matches(name, known, 1)
    hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(known)}"
    raise UsageError(f"there is no column `{name}`", hint)


def _directions(key: str, known: Columns | _Names) -> list[tuple[str, bool]]:
    parts = [key] if key in known.names else key.split(",")
    return [_direction(part.strip(), known) for part in parts]


def _direction(part: str, known: Columns | _Names) -> tuple[str, bool]:
    if part in known.names:
        return part, False
    name, colon, way = part.rpartition(":")
    if colon and way in ("asc", "desc"):
        return known.find(name), way == "desc"
    if part.startswith("-"):
        return known.find(part[1:]), True
    return known.find(part), False


def where(rows: Sequence[Row], text: str, known: Columns | None = None) -> list[Row]:
    """The rows for which the expression holds; `val/loss` needs backticks in it.

    What is missing fits no comparison. A comparison that fits no row at all, because a number is
    compared with text, is a mistake and refused.
    """
    plain, quoted = _without_backticks(text)
    try:
        expression = Expression(plain)
    except UsageError as error:
        hint = f"{error.hint}; names with other characters stand in `backticks`"
        raise UsageError(error.message.replace(plain, text), hint) from None
    if known is None:
        if not rows:
            return []
        known = Columns(rows)
    readers = {name: known.reader(quoted.get(name, name)) for name in sorted(expression.names)}
    found, is_fitting, trouble = [], False, None
    for row in rows:
        values = {name: read(row) for name, read in readers.items()}
        wrong = expression.type_error(values)
        if wrong is not None:
            trouble = trouble or wrong
            continue
        is_fitting = is_fitting or None not in values.values()
        if expression.holds(values):
            found.append(row)
    if trouble is not None and not is_fitting:
        raise UsageError(f"`{text}` fits no row: {trouble}", EXPRESSION_HINT)
    return found


def _without_backticks(text: str) -> tuple[str, dict[str, str]]:
    """Backticked names become ones that Python can read; text in quotes is left alone."""
    result: list[str] = []
    names: dict[str, str] = {}
    position = 0
    while position < len(text):
        char = text[position]
        end = _end_of_quoted(text, position) if char in "\"'`" else position
        if char == "`":
            if end >= len(text):
                raise UsageError(f"`{text}` has a backtick that is not closed")
            stand_in = f"quoted_{len(names)}_"
            while stand_in in text:
                stand_in += "_"
            names[stand_in] = text[position + 1 : end]
            result.append(f" {stand_in} ")
        else:
            result.append(text[position : end + 1])
        position = end + 1
    return "".join(result), names


def _end_of_quoted(text: str, start: int) -> int:
    position = start + 1
    while position < len(text) and text[position] != text[start]:
        position += 2 if text[position] == "\\" and text[start] != "`" else 1
    return position


def best(
    rows: Sequence[Row], name: str, goal: str = "min", known: Columns | None = None
) -> Row | None:
    """The row with the best number; NaN and infinity never are. Of equals the first."""
    sign = direction(goal)
    if known is None:
        if not rows:
            return None
        known = Columns(rows)
    read = known.reader(name)
    found: tuple[float, Row] | None = None
    for row in rows:
        value = read(row)
        if is_number(value) and math.isfinite(value) and (found is None or sign * value < found[0]):
            found = sign * value, row
    return None if found is None else found[1]


def direction(goal: str) -> int:
    """1 where small is good, -1 where large is."""
    if goal in ("min", "minimize"):
        return 1
    if goal in ("max", "maximize"):
        return -1
    raise UsageError(f"`{goal}` is not a goal", "min or max")


# -- groups ---------------------------------------------------------------------------------------


def group(
    rows: Sequence[Row], by: Sequence[str], metric: str, known: Columns | None = None
) -> list[Group]:
    """Rows that are alike in the columns `by`, in the order in which they come up."""
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
            dict(zip(by, (reader(alike[0]) for reader in readers), strict=True)),
            [read(row) for row in alike],
            tuple(row.trial for row in alike),
        )
        for alike in groups.values()
    ]


def grouped(
    rows: Sequence[Row], by: Sequence[str], metric: str, known: Columns | None = None
) -> Table:
    """Groups as a table: what is alike, then how many there are and what they come to."""
    known = known or Columns(rows)
    alike = [known.find(name) for name in by]
    names = [*alike]
    for name in ("n", "mean", "sd", "min", "max", "missing"):
        names.append(f"group.{name}" if name in alike else name)
    lines = [
        (*one.values.values(), one.n, one.mean, one.sd, one.min, one.max, one.missing)
        for one in group(rows, by, metric, known)
    ]
    return Table(tuple(names), lines)


def all_but(rows: Sequence[Row], names: Iterable[str]) -> list[str]:
    """For `group`: parameters that vary, without these, such as the seed."""
    known = Columns(rows)
    left_out = {known.find(name) for name in names}
    return [name for name in varying(rows) if name not in left_out]


def _group(
    values: dict[str, object], measured: list[object], trials: tuple[int | None, ...]
) -> Group:
    found = [value for value in measured if is_number(value) and value == value]
    n = len(found)
    missing = len(measured) - n
    if not found:
        return Group(values, 0, None, None, None, None, missing, trials)
    mean = _sum(found) / n
    # With an infinity in it, the distances from the mean are no numbers.
    sd = None
    if n > 1 and math.isfinite(mean):
        sd = math.sqrt(_sum([(value - mean) * (value - mean) for value in found]) / (n - 1))
    return Group(values, n, mean, sd, min(found), max(found), missing, trials)


def _sum(values: list[float]) -> float:
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # beyond the largest float; both infinities
        return sum(map(float, values))


# -- values ---------------------------------------------------------------------------------------


def identity(value: object) -> tuple[str, object]:
    """Equal for values that are the same to a reader: 1 and 1.0, but not 1 and true."""
    if is_number(value):
        return "number", "nan" if value != value else value
    return type(value).__name__, repr(value)


def rank(value: object) -> tuple[int, float, str]:
    """An order over everything: numbers, then text, then the rest."""
    if isinstance(value, (int, float)):
        return 0, value, ""
    if isinstance(value, str):
        return 1, 0, value
    return 2, 0, json.dumps(value, sort_keys=True, default=str)


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and value != value)


def _names(values: Iterable[dict[str, object]]) -> list[str]:
    return list(dict.fromkeys(name for each in values for name in each))
