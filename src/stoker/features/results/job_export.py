"""The table of all jobs for files: CSV, JSON, Parquet."""

from __future__ import annotations

from stoker.client.views.job import iso
from stoker.client.views.job_tables import JobSelection
from stoker.engine.store.database import Database
from stoker.engine.store.job_columns import TIME, column, find_column
from stoker.errors import UsageError
from stoker.features.results.table import Table

MAX_EXPORTED = 200_000


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
