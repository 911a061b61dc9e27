"""The table of all jobs for `stoker ls --where` and the history of the web UI."""

from __future__ import annotations

import time
from collections.abc import Iterable

from stoker.client.views.job import clock_words, ended_words, iso
from stoker.client.views.past_times import parse_past_time
from stoker.engine.store import job_columns
from stoker.engine.store.database import Database
from stoker.engine.store.job_columns import BYTES, SECONDS, TIME, Condition, column, find_column
from stoker.engine.store.job_filter_sql import compile_filter
from stoker.engine.store.job_table import Filters, Functions, JobTable
from stoker.errors import UsageError
from stoker.features.results.export import short
from stoker.features.results.table import Table, directions
from stoker.record import Record
from stoker.text.byte_text import unpack_words
from stoker.text.commands.shell_words import display
from stoker.text.durations import format_duration
from stoker.text.filters.filter_text import FilterText
from stoker.text.sizes import format_size

DEFAULT_ORDER = "-id"
MAX_EXPORTED = 200_000


def _command(argv: bytes, shell: int) -> str:
    # SQLite takes only valid UTF-8.
    return display(unpack_words(argv), bool(shell)).encode("utf-8", "replace").decode()


_FUNCTIONS = Functions(_command, ended_words)


class JobOrder(Record):
    """Columns to sort by, each with whether it is descending."""

    columns: list[tuple[str, bool]]

    @property
    def is_newest_first(self) -> bool:
        """Whether pages can be continued by the last id."""
        return self.columns == [("id", True)]

    @property
    def joins(self) -> str:
        return "".join(column(name).joins for name, _ in self.columns)


class JobSelection(Record):
    """Which jobs, in which order. `conditions` are compiled filters."""

    filters: Filters
    conditions: list[Condition]
    order: JobOrder
    now: float

    def table(self, db: Database) -> JobTable:
        return JobTable(db, self.filters, self.conditions, self.now, _FUNCTIONS)

    def reads_metrics(self, columns: Iterable[str] = ()) -> bool:
        """Whether metrics of jobs are part of the filter, the order or these columns."""
        joins = "".join(one.joins for one in self.conditions) + self.order.joins
        joins += "".join(column(name).joins for name in columns)
        return job_columns.has_metrics(joins)


class _Known:
    def __init__(self) -> None:
        self.names = list(job_columns.COLUMNS)

    def find(self, name: str) -> str:
        return find_column(name)


def job_order(text: str | None) -> JobOrder:
    """Parse `-duration` or `state,-duration`; raises UsageError."""
    return JobOrder(directions(text or DEFAULT_ORDER, _Known()))


def job_selection(
    where: Iterable[str], sort: str | None = None, filters: Filters | None = None
) -> JobSelection:
    """Parse filters and an order. Raises UsageError, for a filter with its place in the text."""
    now = time.time()
    conditions = [
        compile_filter(FilterText(text), lambda one: parse_past_time(one, now), f"w{n}_")
        for n, text in enumerate(where)
        if text.strip()
    ]
    return JobSelection(filters or Filters(), conditions, job_order(sort), now)


def exported(db: Database, selection: JobSelection, columns: list[str]) -> Table:
    """The matching jobs as a table, in order. Raises UsageError if there are too many."""
    names = [find_column(name) for name in columns]
    lines = selection.table(db).values(names, selection.order.columns, MAX_EXPORTED + 1)
    if len(lines) > MAX_EXPORTED:
        raise UsageError(
            f"more than {MAX_EXPORTED:,} jobs match, which is the limit of an export",
            "filter by time, for example: submitted > '7d ago'",
        )
    times = [place for place, name in enumerate(names) if column(name).kind == TIME]
    if times:
        lines = [_with_times(line, times) for line in lines]
    return Table(tuple(names), lines)


def _with_times(line: tuple[object, ...], places: list[int]) -> tuple[object, ...]:
    cells = list(line)
    for place in places:
        value = cells[place]
        cells[place] = iso(value) if isinstance(value, (int, float)) else None
    return tuple(cells)


def cell_words(name: str, value: object) -> str:
    """A value for people: `1h05m`, `20 GiB`, a local time; `-` if it is missing."""
    kind = column(name).kind
    if isinstance(value, (int, float)):
        if kind == SECONDS:
            return format_duration(value)
        if kind == BYTES:
            return format_size(value)
        if kind == TIME:
            return clock_words(value, time.time())
    return short(value)
