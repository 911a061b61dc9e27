"""Failures in groups: jobs or trials that failed in the same way, for tables."""

from __future__ import annotations

from collections.abc import Iterable

from stoker.client.views.job import ended_words
from stoker.client.views.job_tables import JobSelection
from stoker.engine.store.database import Database
from stoker.features.results.table import Columns, Row
from stoker.record import Record
from stoker.text.filters.filter_text import as_typed

_STATES = ("failed", "lost")
_MOST = 20


class FailureGroup(Record):
    state: str
    result: str  # how they failed, in the words of `stoker ls`
    size: int
    job: int | None  # the newest of them
    trial: int | None
    where: str  # the filter that selects them


def job_failures(db: Database, selection: JobSelection) -> list[FailureGroup]:
    """Groups of the failed and lost jobs of a selection, the largest first."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for state, cause, status, detail, count, newest in selection.table(db).failures():
        key = state, ended_words(state, cause, status, detail) or ""
        n, latest = found.get(key, (0, 0))
        found[key] = n + count, max(latest, newest)
    groups = [
        FailureGroup(state, result, count, job, None, _where(state, result, "result"))
        for (state, result), (count, job) in found.items()
    ]
    return sorted(groups, key=lambda one: -one.size)[:_MOST]


def trial_failures(rows: Iterable[Row], known: Columns) -> list[FailureGroup]:
    """Groups of the failed and lost trials among rows, the largest first."""
    column = as_typed(known.find("job.result"))
    found: dict[tuple[str, str], FailureGroup] = {}
    for row in rows:
        result = row.end.get("result")
        if row.state not in _STATES or not isinstance(result, str):
            continue
        key = row.state, result
        count = found[key].size if key in found else 0
        where = _where(row.state, result, column)
        found[key] = FailureGroup(row.state, result, count + 1, row.job, row.trial, where)
    return sorted(found.values(), key=lambda one: -one.size)[:_MOST]


def _where(state: str, result: str, column: str) -> str:
    return f"state == {state!r} and {column} == {result!r}"
