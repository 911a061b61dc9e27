"""The table of all jobs in the web UI: pages, groups of failures and exports."""

from __future__ import annotations

from stoker.client.queue import Queue
from stoker.client.throttled_cache import ThrottledCache
from stoker.client.views import job as views
from stoker.client.views.failure_groups import job_failures
from stoker.client.views.job_tables import JobSelection, exported, job_selection
from stoker.client.views.table_columns import TableColumn, complete_job_filter, job_table_columns
from stoker.engine.store import job_queries
from stoker.engine.store.job_columns import find_column, is_column
from stoker.features.results import export
from stoker.features.results.reports.store import store_metrics
from stoker.features.results.reports.metric_cache import Reports
from stoker.text.filters.filter_completion import Completion
from stoker.text.finite_values import finite
from stoker.web.job_view import JobsQuery

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
