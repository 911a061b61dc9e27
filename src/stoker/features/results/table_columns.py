"""The columns of the tables of the web UI, and the completion of their filters."""

from __future__ import annotations

from collections.abc import Sequence

from stoker.client.views.job import CAUSES
from stoker.engine.store import history
from stoker.engine.store.database import Database
from stoker.engine.store.job_columns import COLUMNS, NUMBERS
from stoker.features.backends import store as backends
from stoker.features.results.reports import store as job_metrics
from stoker.features.results.table import Columns, Row, identity
from stoker.record import Record
from stoker.states import STATES
from stoker.text.filters.filter_completion import Completion, complete

_MOST_VALUES = 30
_NEWEST = 2000  # jobs whose names and tags are offered
_FIXED_WORDS = {
    "trial": "number of the trial",
    "job": "number of the job",
    "state": "state of the trial",
    "seconds": "how long it ran",
    "result": "how it failed, in words",
    "cause": "why it ended: gpu_oom, time_limit, ...",
    "exit": "exit code",
}


class TableColumn(Record):
    name: str
    kind: str  # job, metric, param or extra: the group in which it is listed
    words: str
    is_number: bool


def job_table_columns(db: Database) -> list[TableColumn]:
    """All columns of the table of jobs; the metrics and parameters are those of recent jobs."""
    found = [
        TableColumn(one.name, "job", one.words, one.kind in NUMBERS) for one in COLUMNS.values()
    ]
    for name in job_metrics.names(db):
        kind = name.partition(".")[0]
        words = (
            "last value of a finished job"
            if kind == "metric"
            else "parameter of its trial or command"
        )
        found.append(TableColumn(name, kind, words, True))
    return found


def complete_job_filter(
    db: Database, columns: Sequence[TableColumn], text: str, at: int
) -> Completion:
    names = [(one.name, one.words) for one in columns]
    return complete(text, at, names, lambda name: _job_values(db, name))


def _job_values(db: Database, name: str) -> Sequence[tuple[object, str]]:
    if name == "state":
        return [(state, "") for state in STATES]
    if name == "cause":
        return list(CAUSES.items())
    if name == "result":
        return [(text, "") for text in dict.fromkeys(CAUSES.values())]
    if name == "backend":
        return [("local", "this host"), *((one.name, one.kind) for one in backends.backends(db))]
    if name == "sweep":
        return [(sweep, "") for sweep in history.newest_sweeps(db, _MOST_VALUES)]
    if name in ("submitted", "started", "ended"):
        return [("today", "since midnight"), ("yesterday", ""), ("24h ago", ""), ("7d ago", "")]
    if name in ("duration", "waited"):
        return [("10m", ""), ("1h", ""), ("1d", "")]
    if name in ("name", "tag"):
        return [(one, "") for one in history.newest_words(db, name, _NEWEST, _MOST_VALUES)]
    return []


def trial_table_columns(known: Columns) -> list[TableColumn]:
    """All columns of a table of trials."""
    found = []
    for kind in ("fixed", "param", "metric", "extra", "job"):
        for name in known.of(kind):
            bare = name.removeprefix("job.")
            words = {"param": "parameter", "metric": "last value"}.get(kind)
            group = "job" if kind in ("fixed", "extra") else kind
            found.append(
                TableColumn(name, group, words or _FIXED_WORDS.get(bare, ""), kind == "metric")
            )
    return found


def complete_trial_filter(rows: Sequence[Row], known: Columns, text: str, at: int) -> Completion:
    columns = [(one.name, one.words) for one in trial_table_columns(known)]

    def values_of(name: str) -> Sequence[tuple[object, str]]:
        if name not in known.names:
            return []
        read = known.reader(name)
        found: dict[object, object] = {}
        for row in rows:
            value = read(row)
            if isinstance(value, (str, int, float)) and value == value:
                found.setdefault(identity(value), value)
            if len(found) >= _MOST_VALUES:
                break
        return [(value, "") for value in found.values()]

    return complete(text, at, columns, values_of)
