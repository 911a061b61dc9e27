"""Jobs in the web UI: one in full, and the table of all, its groups of failures and exports."""

from __future__ import annotations

import time

from stoker.client.queue import Queue
from stoker.client.throttled_cache import ThrottledCache
from stoker.client.views import job as views
from stoker.client.views import why as wait_reasons
from stoker.client.views.job_tables import JobSelection, job_selection
from stoker.client.views.running_jobs import run_view
from stoker.client.views.what_if import what_if_json
from stoker.engine.model import LOCAL
from stoker.engine.store import job_queries
from stoker.engine.store.job_columns import find_column, is_column
from stoker.engine.store.job_queries import JobRow
from stoker.engine.store.job_table import Filters, JobTable
from stoker.errors import UsageError
from stoker.features.results import export
from stoker.features.results.failure_groups import job_failures
from stoker.features.results.job_export import exported
from stoker.features.results.reports.metric_cache import Reports, params_of
from stoker.features.results.reports.store import store_metrics
from stoker.features.results.table_columns import (
    TableColumn,
    complete_job_filter,
    job_table_columns,
)
from stoker.features.sweeps import store as sweeps
from stoker.record import Record
from stoker.states import STATES
from stoker.text.filters.filter_completion import Completion
from stoker.text.finite_values import finite
from stoker.text.selectors import parse_selector


def job_in_full(queue: Queue, row: JobRow, reports: Reports) -> dict[str, object]:
    """As in `stoker show --json`, with the reasons for waiting, parameters and metrics."""
    db = queue.db
    wait = wait_reasons.explain_wait(db, queue.settings, row)
    run = run_view(db, queue.settings, row)
    return {
        **views.job_in_full(db, queue.settings, row),
        "run": None if run is None else run.as_json(time.time()),
        "why": wait.reasons,
        "what_if": what_if_json(row, wait.what_ifs),
        "ready": _is_ready(row),
        "params": params_of(db, row),
        "metrics": reports.metrics(row),
    }


def _is_ready(row: JobRow) -> bool:
    """Whether the job waits for resources of this host only, so that its priority decides when it
    starts."""
    is_due = row.eligible_at is None or row.eligible_at <= time.time()
    is_here = not row.request.backend
    return row.state == "queued" and is_here and not row.blockers and is_due


class JobsQuery(Record):
    """What the address of a list of jobs says: quick filters, a filter and an order."""

    state: str | None = None
    tag: str | None = None
    name: str | None = None
    sweep: str | None = None
    on: str | None = None
    q: str | None = None
    where: str | None = None
    sort: str | None = None
    starred: bool = False

    def filters(self, queue: Queue) -> Filters:
        """Raises UsageError; NotFound for an unknown sweep."""
        return Filters(
            states=parse_states(self.state),
            tag=self.tag or None,
            name=self.name or None,
            sweep=sweeps.get(queue.db, self.sweep).id if self.sweep else None,
            text=self.q or None,
            starred=self.starred,
            backend=None if not self.on else "" if self.on == LOCAL else self.on,
        )


def jobs_page(queue: Queue, query: JobsQuery, before: int | None, limit: int) -> dict[str, object]:
    """One page of jobs, newest first, and the id that continues it (None at the end)."""
    table = JobTable(queue.db, query.filters(queue))
    with queue.db.reading():
        ids = table.ids(before=before, limit=limit + 1)
        rows = job_queries.jobs(queue.db, ids[:limit])
    return {
        "jobs": [views.job_json(queue.db, queue.settings, row) for row in rows],
        "next": ids[limit - 1] if len(ids) > limit else None,
    }


def parse_states(text: str | None) -> tuple[str, ...] | None:
    """Parse `failed`, `failed,lost` or `active`; None means all states."""
    if not text:
        return None
    found: dict[str, None] = {}
    for word in text.split(","):
        states = parse_selector(word.strip()).states if word.strip() else None
        if states is None:
            raise UsageError(f"`{word}` is not a state", f"states: {', '.join(STATES)}")
        found.update(dict.fromkeys(states))
    return None if len(found) == len(STATES) else tuple(found)


MAX_COUNTED = 100_000
# How long one request may read metrics of finished jobs that are not stored yet.
_METRICS_SECONDS = 0.25


class JobTableView:
    """Caches what reads all jobs: counts and groups."""

    def __init__(self, reports: Reports) -> None:
        self._reports = reports
        self._counts: ThrottledCache[int] = ThrottledCache()
        self._columns: ThrottledCache[list[TableColumn]] = ThrottledCache()
        self._groups: ThrottledCache[list[dict[str, object]]] = ThrottledCache()

    def page(
        self,
        queue: Queue,
        query: JobsQuery,
        columns: list[str],
        before: int | None,
        offset: int,
        limit: int,
    ) -> dict[str, object]:
        """Jobs with the values of columns, and where the next page begins."""
        db, selection = queue.db, _selection(queue, query)
        names = [name for name in columns if is_column(name)]  # a browser remembers columns
        unread = self._store_metrics(queue, selection, names)
        table, order = selection.table(db), selection.order
        ids = table.ids(
            order.columns,
            before=before if order.is_newest_first else None,
            offset=0 if order.is_newest_first else offset,
            limit=limit + 1,
        )
        has_more, ids = len(ids) > limit, ids[:limit]
        values = table.values_of(ids, names) if names else {}
        jobs = [
            {**views.job_json(db, queue.settings, row), "values": finite(values.get(row.id, {}))}
            for row in job_queries.jobs(db, ids)
        ]
        following = None
        if has_more:
            following = ids[-1] if order.is_newest_first else offset + limit
        total = self._counts.get(query._replace(sort=None), lambda: table.count(MAX_COUNTED + 1))
        return {
            "jobs": jobs,
            "next": following,
            "total": min(total, MAX_COUNTED),
            "has_more": total > MAX_COUNTED,
            "unread": unread,
        }

    def columns(self, queue: Queue) -> list[TableColumn]:
        """All columns. Reads metrics of finished jobs first: their names are columns too."""

        def read() -> list[TableColumn]:
            store_metrics(queue.db, self._reports.places, _METRICS_SECONDS)
            return job_table_columns(queue.db)

        return self._columns.get("", read)

    def complete(self, queue: Queue, text: str, at: int) -> Completion:
        return complete_job_filter(queue.db, self.columns(queue), text, at)

    def failures(self, queue: Queue, query: JobsQuery) -> dict[str, object]:
        selection = _selection(queue, query)
        unread = self._store_metrics(queue, selection, [])
        groups = self._groups.get(
            (query._replace(sort=None), unread),
            lambda: [one._asdict() for one in job_failures(queue.db, selection)],
        )
        return {"groups": groups}

    def export(self, queue: Queue, query: JobsQuery, columns: list[str], form: str) -> bytes:
        selection = _selection(queue, query)
        self._store_metrics(queue, selection, [find_column(name) for name in columns])
        return export.export(exported(queue.db, selection, columns), form)

    def _store_metrics(self, queue: Queue, selection: JobSelection, columns: list[str]) -> int:
        if not selection.reads_metrics(columns):
            return 0
        return store_metrics(queue.db, self._reports.places, _METRICS_SECONDS)


def _selection(queue: Queue, query: JobsQuery) -> JobSelection:
    """Raises UsageError; NotFound for an unknown sweep."""
    return job_selection([query.where] if query.where else [], query.sort, query.filters(queue))
