"""The last values of the metrics of finished jobs, read once, so that filters read no files."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable

from stoker.engine.store import job_queries
from stoker.engine.store.database import Database
from stoker.engine.store.job_columns import FINAL_LIST
from stoker.errors import Error, NotFound
from stoker.features.results.reports.reports import JobFiles, collect, restored, source_of_job
from stoker.features.results.reports.summary import Collector
from stoker.features.sweeps import store as sweeps
from stoker.text.finite_values import finite

_NAMES_OF_NEWEST = 500  # jobs whose metrics and parameters are offered as columns
_UNREAD = (
    " FROM jobs j LEFT JOIN job_metrics m ON m.job = j.id AND m.attempts = j.attempts"
    f" WHERE j.state IN ({FINAL_LIST}) AND j.attempts > 0 AND m.job IS NULL"
)


def unread(db: Database, limit: int) -> list[int]:
    """Return finished jobs whose metrics are not stored, the newest first."""
    rows = db.execute(f"SELECT j.id{_UNREAD} ORDER BY j.id DESC LIMIT ?", (limit,))
    return [row[0] for row in rows]


def count_unread(db: Database) -> int:
    return int(str(db.value(f"SELECT count(*){_UNREAD}")))


def save(db: Database, found: Iterable[tuple[int, int, dict[str, object]]]) -> None:
    """Store (job, attempts, metrics). Call it in a transaction."""
    db.executemany(
        "INSERT OR REPLACE INTO job_metrics (job, attempts, metrics)"
        " SELECT id, attempts, ? FROM jobs WHERE id = ? AND attempts = ?",
        [(json.dumps(metrics, allow_nan=False), job, attempts) for job, attempts, metrics in found],
    )


def names(db: Database) -> list[str]:
    """Return the metrics and parameters of the newest jobs that have some, as column names."""
    metrics = db.execute(
        "SELECT DISTINCT key FROM (SELECT metrics FROM job_metrics WHERE metrics != '{}'"
        " ORDER BY job DESC LIMIT ?) m, json_each(m.metrics) ORDER BY key LIMIT 1000",
        (_NAMES_OF_NEWEST,),
    )
    params = db.execute(
        "SELECT DISTINCT key FROM (SELECT point FROM trials ORDER BY id DESC LIMIT ?) t,"
        " json_each(t.point) ORDER BY key LIMIT 1000",
        (_NAMES_OF_NEWEST,),
    )
    return [*(f"metric.{row[0]}" for row in metrics), *(f"param.{row[0]}" for row in params)]


_CHUNK = 200
_MAX_NAMES = 100  # metrics of one job
_MAX_TEXT = 200


def store_metrics(db: Database, files: JobFiles, seconds: float | None = None) -> int:
    """Store the metrics of finished jobs, the newest first, for at most about `seconds`.

    Returns the number of jobs that are left. A database that cannot be written is left as it is.
    """
    end = None if seconds is None else time.monotonic() + seconds
    while ids := unread(db, _CHUNK):
        found = []
        for id in ids:
            found.append(_metrics_of(db, files, id))
            if end is not None and time.monotonic() > end:
                break
        try:
            with db.transaction():
                save(db, [one for one in found if one is not None])
        except Error:
            return count_unread(db)  # read-only or full: the next reader tries again
        if end is not None and time.monotonic() > end:
            return count_unread(db)
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
