"""The table of all jobs for `stoker ls --where` and the history of the web UI."""

from __future__ import annotations

import time
from collections.abc import Iterable

from stoker.client.views.job import ended_words
from stoker.client.views.past_times import parse_past_time
from stoker.engine.store import job_columns
from stoker.engine.store.database import Database
from stoker.engine.store.job_columns import Condition, column, find_column
from stoker.engine.store.job_filter_sql import compile_filter
from stoker.engine.store.job_table import Filters, Functions, JobTable
from stoker.record import Record
from stoker.text.byte_text import unpack_words
from stoker.text.commands.shell_words import display
from stoker.text.filters.filter_text import FilterText
from stoker.text.filters.sort_order import directions

DEFAULT_ORDER = "-id"


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
