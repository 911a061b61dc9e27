"""Read the metrics of finished jobs once and store them, so that filters read no files."""

from __future__ import annotations

import time

from stoker.engine.store import job_queries
from stoker.engine.store.database import Database
from stoker.errors import Error, NotFound
from stoker.features.results.reports import store as job_metrics
from stoker.features.results.reports.reports import JobFiles, collect, restored, source_of_job
from stoker.features.results.reports.summary import Collector
from stoker.features.sweeps import store as sweeps
from stoker.text.finite_values import finite

_CHUNK = 200
_MAX_NAMES = 100  # metrics of one job
_MAX_TEXT = 200


def store_metrics(db: Database, files: JobFiles, seconds: float | None = None) -> int:
    """Store the metrics of finished jobs, the newest first, for at most about `seconds`.

    Returns the number of jobs that are left. A database that cannot be written is left as it is.
    """
    end = None if seconds is None else time.monotonic() + seconds
    while ids := job_metrics.unread(db, _CHUNK):
        found = []
        for id in ids:
            found.append(_metrics_of(db, files, id))
            if end is not None and time.monotonic() > end:
                break
        try:
            with db.transaction():
                job_metrics.save(db, [one for one in found if one is not None])
        except Error:
            return job_metrics.count_unread(db)  # read-only or full: the next reader tries again
        if end is not None and time.monotonic() > end:
            return job_metrics.count_unread(db)
    return 0


def _metrics_of(
    db: Database, files: JobFiles, id: int
) -> tuple[int, int, dict[str, object]] | None:
    try:
        job = job_queries.job(db, id)
    except NotFound:
        return None  # removed meanwhile
    collector = restored(sweeps.reports_of(db, id)) if job.sweep is not None else None
    if collector is None:
        collector = collect(files, source_of_job(job), Collector())
    return id, job.attempts, summarized(collector)


def summarized(collector: Collector) -> dict[str, object]:
    """The last values of the metrics of a job, as they are stored for filters."""
    names = list(collector.summary)[:_MAX_NAMES]
    values = {name: finite(collector.summary[name].last) for name in names}
    return {
        name: value[:_MAX_TEXT] if isinstance(value, str) else value
        for name, value in values.items()
        if isinstance(value, (str, int, float)) and len(name) <= _MAX_TEXT
    }
