"""`stoker ls` with `--where`, `--sort` and `--columns`: the table of all jobs in the terminal."""

from __future__ import annotations

from stoker.cli.output import notice, plural, table
from stoker.client.job_filter import select_or_sweep
from stoker.client.job_metrics import store_metrics
from stoker.client.job_tables import JobSelection, cell_words, job_selection
from stoker.client.queue import Queue
from stoker.client.reports import JobFiles
from stoker.core.formats.command_line import Parsed
from stoker.store import job_metrics, job_queries
from stoker.store.history import Filters
from stoker.store.job_columns import find_column
from stoker.store.job_queries import JobRow
from stoker.store.job_table import among

_MANY = 1000  # finished jobs whose reports take a noticeable time to read


def matching_rows(
    queue: Queue, parsed: Parsed, states: tuple[str, ...] | None, backend: str | None, limit: int
) -> list[JobRow]:
    """The jobs that options and `--where` select: in the order of `--sort`, or the newest last.

    Raises UsageError.
    """
    filters = Filters(
        states=states,
        tag=parsed["tag"],
        name=parsed["name"],
        backend=backend,
        starred=bool(parsed["starred"]),
    )
    selection = job_selection(parsed["where"] or (), parsed["sort"], filters)
    if parsed.words:
        chosen = among(select_or_sweep(queue, parsed.words))
        selection = selection._replace(conditions=[*selection.conditions, chosen])
    _read_metrics(queue, selection, ())
    ids = selection.table(queue.db).ids(selection.order.columns, before=None, offset=0, limit=limit)
    return job_queries.jobs(queue.db, ids if parsed["sort"] is not None else ids[::-1])


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
