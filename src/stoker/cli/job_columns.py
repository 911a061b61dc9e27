"""`stoker ls` with `--where`, `--sort` and `--columns`: the table of all jobs in the terminal."""

from __future__ import annotations

import time
from collections.abc import Iterable

from stoker.cli.output import notice, plural, table
from stoker.client.queue import Queue
from stoker.client.views.job import clock_words
from stoker.client.views.job_tables import JobSelection, job_selection
from stoker.engine.store.job_columns import BYTES, SECONDS, TIME, column, find_column
from stoker.engine.store.job_queries import JobRow
from stoker.engine.store.job_table import Filters, JobTable, Order
from stoker.features.results.export import short
from stoker.features.results.reports import store as job_metrics
from stoker.features.results.reports.reports import JobFiles
from stoker.features.results.reports.store import store_metrics
from stoker.text.durations import format_duration
from stoker.text.sizes import format_size

_MANY = 1000  # finished jobs whose reports take a noticeable time to read


def filtered_table(
    queue: Queue, filters: Filters, where: Iterable[str], sort: str | None
) -> tuple[JobTable, Order]:
    """The jobs that filters and `--where` select, and the order of `--sort`. Raises UsageError."""
    selection = job_selection(where, sort, filters)
    _read_metrics(queue, selection, ())
    return selection.table(queue.db), selection.order.columns


def values_of(queue: Queue, text: str, ids: list[int]) -> dict[int, dict[str, object]]:
    """The values of `--columns` of each job. Raises UsageError."""
    names = tuple(find_column(word.strip()) for word in text.split(","))
    selection = job_selection(())
    _read_metrics(queue, selection, names)
    return selection.table(queue.db).values_of(ids, list(names))


def columns_table(queue: Queue, text: str, rows: list[JobRow]) -> str:
    """The table of `--columns`."""
    values = values_of(queue, text, [row.id for row in rows])
    names = list(next(iter(values.values())))
    lines = [tuple(cell_words(name, values[row.id][name]) for name in names) for row in rows]
    state = names.index("state") if "state" in names else -1
    return table(tuple(name.upper() for name in names), lines, state=state)


def _read_metrics(queue: Queue, selection: JobSelection, columns: tuple[str, ...]) -> None:
    if not selection.reads_metrics(columns):
        return
    waiting = len(job_metrics.unread(queue.db, _MANY))
    if waiting >= _MANY:
        count = plural(job_metrics.count_unread(queue.db), "finished job")
        notice(f"reading the metrics of {count}, once")
    store_metrics(queue.db, JobFiles(queue.settings.state_dir))


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
