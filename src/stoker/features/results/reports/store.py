"""The last values of the metrics of finished jobs, which job_metrics.py reads once."""

from __future__ import annotations

import json
from collections.abc import Iterable

from stoker.engine.store.database import Database
from stoker.engine.store.job_columns import FINAL_LIST

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
