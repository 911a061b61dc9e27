"""Sweeps as the web UI and `stoker top` show them: summaries, tables and curves."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import lru_cache

from stoker.client.throttled_cache import ThrottledCache
from stoker.engine.store import history
from stoker.engine.store.database import Database
from stoker.errors import NotFound
from stoker.features.notes import store as notes
from stoker.features.notes.client import full_note_json, sweep_note_json
from stoker.features.results import export
from stoker.features.results.failure_groups import FailureGroup, trial_failures
from stoker.features.results.importance import explain, importance
from stoker.features.results.reports.metric_cache import LruCache, Reports
from stoker.features.results.reports.reports import KnownReports, Reported, sweep_reports
from stoker.features.results.table import (
    Columns,
    Row,
    best,
    columns,
    ranked,
    select_columns,
    sort,
    where,
)
from stoker.features.results.table_columns import (
    TableColumn,
    complete_trial_filter,
    trial_table_columns,
)
from stoker.features.sweeps import store as sweeps
from stoker.features.sweeps.control.trials import is_missing
from stoker.features.sweeps.spec import domains, spec
from stoker.features.sweeps.spec.spec import ADAPTIVE, Metric, SweepSpec, make_metric, read_metric
from stoker.features.sweeps.store import SweepRow
from stoker.features.sweeps.store_provenance import trial_codes
from stoker.features.sweeps.sweep_states import choices, sweep_state
from stoker.text.commands.shell_words import display
from stoker.text.filters.filter_completion import Completion
from stoker.text.finite_values import finite

_IN_OVERVIEW = 20
_LISTED = 200
# The time an overview may spend on reading results; the rest follows in a later event.
_OVERVIEW_SECONDS = 0.05


class SweepCache:
    """Caches what is expensive to read: the counts and reports of large sweeps."""

    def __init__(self, reports: Reports) -> None:
        self._reports = reports
        self._counts: ThrottledCache[dict[str, int]] = ThrottledCache()
        self._reported: ThrottledCache[list[Reported]] = ThrottledCache(factor=4.0, max_entries=4)
        self._known: LruCache[KnownReports] = LruCache(4)  # by sweep
        self._bests: ThrottledCache[dict[str, object] | None] = ThrottledCache(
            factor=20.0, min_seconds=1.0
        )
        self._missing: ThrottledCache[int] = ThrottledCache()
        self._shown_bests: dict[int, dict[str, object] | None] = {}

    def seconds_until_fresh(self) -> float:
        return max(self._counts.seconds_until_fresh(), self._bests.seconds_until_fresh())

    # -- summaries -----------------------------------------------------------------------------

    def newest(self, db: Database, limit: int = _IN_OVERVIEW) -> list[dict[str, object]]:
        """The sweeps of the overview: active ones first, then the newest."""
        deadline = time.monotonic() + _OVERVIEW_SECONDS
        found = []
        for row in _newest(db):
            found.append((row, self._count(db, row), _spec(row)))
        found.sort(key=lambda one: (sweep_state(db, *one[:2]) == "active", one[0].id), reverse=True)
        shown = []
        for row, counts, given in found[:limit]:
            if time.monotonic() < deadline:
                self._best(db, row, given)
            shown.append(_summary(db, row, counts, given, self._shown_bests.get(row.id)))
        return shown

    def listed(self, db: Database) -> list[dict[str, object]]:
        """The newest two hundred sweeps, newest first."""
        return [self.summary(db, row) for row in _newest(db)]

    def summary(self, db: Database, row: SweepRow) -> dict[str, object]:
        given = _spec(row)
        return _summary(db, row, self._count(db, row), given, self._best(db, row, given))

    def in_full(self, db: Database, name: str) -> dict[str, object]:
        row = sweeps.get(db, name)
        given = _spec(row)
        summary, counts = self.summary(db, row), self._count(db, row)
        missing = self._missing.get(row.id, lambda: _missing(db, row))
        possible = choices(row, given, counts, missing, sweep_state(db, row, counts))
        return {
            **summary,
            "spec": finite(given.to_json()),
            "params": _params(given),
            "missing": missing,
            "other_code": trial_codes(db, row.id).others,
            "requested": given.total_trials,
            "actions": [one._asdict() for one in possible],
            "created_at": row.created_at,
            **full_note_json(notes.note(db, notes.SWEEP, row.id)),
        }

    def _count(self, db: Database, row: SweepRow) -> dict[str, int]:
        return self._counts.get(row.id, lambda: sweeps.counts(db, row.id))

    def _best(self, db: Database, row: SweepRow, given: SweepSpec) -> dict[str, object] | None:
        metric = given.metric
        if metric is None:
            return None
        found = self._bests.get(row.id, lambda: _best(self._rows(db, row), metric))
        self._shown_bests[row.id] = found
        return found

    # -- results -------------------------------------------------------------------------------

    def results(
        self,
        db: Database,
        name: str,
        order: str | None,
        condition: str | None,
        limit: int,
        offset: int,
        also: Sequence[str] = (),
    ) -> dict[str, object]:
        """A page of trials, with the columns of `stoker results --all` and those in `also` that
        exist: a browser remembers columns."""
        row = sweeps.get(db, name)
        rows, known = self._selected(db, row, condition, order)
        names = columns(self._rows(db, row), constants=True)
        exist = set(known.names)
        names += [one for one in dict.fromkeys(also) if one in exist and one not in names]
        metric = _spec(row).metric
        shown = select_columns(rows[offset : offset + limit], names, known)
        return {
            "columns": names,
            "rows": [finite(one) for one in export.records(shown)],
            "total": len(rows),
            "metric": None if metric is None else {"name": metric.name, "goal": metric.goal},
        }

    def _selected(
        self, db: Database, row: SweepRow, condition: str | None, order: str | None = None
    ) -> tuple[list[Row], Columns]:
        """The trials that match, in order, and the columns of all trials."""
        rows = self._rows(db, row)
        known = _columns(rows, row)
        if not rows:  # a search that has not started: the metric is not a column yet
            return rows, known
        if condition and condition.strip():
            rows = where(rows, condition, known)
        return sort(rows, order, known=known) if order else rows, known

    def failures(self, db: Database, name: str, condition: str | None) -> list[FailureGroup]:
        """Failed trials in groups that failed in the same way."""
        return trial_failures(*self._selected(db, sweeps.get(db, name), condition))

    def table_columns(self, db: Database, name: str) -> list[TableColumn]:
        row = sweeps.get(db, name)
        return trial_table_columns(_columns(self._rows(db, row), row))

    def complete(self, db: Database, name: str, text: str, at: int) -> Completion:
        """What can be typed at a place of a filter of these trials."""
        row = sweeps.get(db, name)
        rows = self._rows(db, row)
        return complete_trial_filter(rows, _columns(rows, row), text, at)

    def export(
        self,
        db: Database,
        name: str,
        order: str | None,
        condition: str | None,
        chosen: Sequence[str] | None,
        form: str,
    ) -> bytes:
        """The trials that match as a file, in order, with the chosen columns."""
        row = sweeps.get(db, name)
        rows, known = self._selected(db, row, condition, order)
        names = chosen or columns(self._rows(db, row), constants=True)
        return export.export(select_columns(rows, names, known), form)

    def curves(
        self, db: Database, name: str, text: str | None, limit: int, points: int
    ) -> dict[str, object]:
        row = sweeps.get(db, name)
        reported = self.reported_of(db, row)
        metric = _chosen(text, _spec(row), reported)
        if metric is None:
            return {"metric": None, "curves": []}
        found = [one for one in reported if metric.name in one.summary and one.source is not None]
        found = ranked(found, [one.row.metrics[metric.name] for one in found], metric.goal)
        curves = [
            {
                "trial": one.row.trial,
                "job": one.row.job,
                "params": finite(one.row.params),
                "result": finite(one.row.metrics[metric.name]),
                "points": self._reports.curve(one.source, metric.name, points),
            }
            for one in found[:limit]
            if one.source is not None
        ]
        return {"metric": {"name": metric.name, "goal": metric.goal}, "curves": curves}

    def metric_names(self, db: Database, name: str) -> list[str]:
        """The metrics that trials reported, that of the sweep first."""
        row = sweeps.get(db, name)
        own = _spec(row).metric
        reported = self.reported_of(db, row)
        names = list(dict.fromkeys(metric for one in reported for metric in one.summary))
        if own is not None:
            names.sort(key=lambda metric: metric != own.name)
        return names

    def importance(self, db: Database, name: str, text: str | None) -> dict[str, object]:
        """How strongly each parameter influences a metric, the most important first."""
        row = sweeps.get(db, name)
        reported = self.reported_of(db, row)
        metric = _chosen(text, _spec(row), reported)
        rows = [one.row for one in reported]
        if metric is None or not any(metric.name in one.metrics for one in rows):
            name_of_it = None if metric is None else metric.name
            return {"metric": name_of_it, "importance": [], "explanation": ""}
        found = importance(rows, f"metric.{metric.name}")
        return {
            "metric": metric.name,
            "importance": [one._asdict() for one in found],
            "explanation": explain(found, metric.name),
        }

    def _rows(self, db: Database, row: SweepRow) -> list[Row]:
        return [one.row for one in self.reported_of(db, row)]

    def reported_of(self, db: Database, row: SweepRow) -> list[Reported]:
        """All trials of a sweep with their reports; callers must not change them."""
        return self._reported.get(row.id, lambda: self._read(db, row))

    def _read(self, db: Database, row: SweepRow) -> list[Reported]:
        known = self._known.get(row.id)
        if known is None:
            known = {}
            self._known.put(row.id, known)
        return sweep_reports(db, self._reports.places, row, known)


def _missing(db: Database, row: SweepRow) -> int:
    return sum(is_missing(trial) for trial in sweeps.trials(db, row.id))


def _columns(rows: list[Row], row: SweepRow) -> Columns:
    """The columns of trials, with the parameters that no trial has yet."""
    return Columns(rows, _spec(row).space.names)


def _newest(db: Database) -> list[SweepRow]:
    found = (sweeps.by_name(db, name) for name in history.newest_sweeps(db, _LISTED))
    return [row for row in found if row is not None]


def _spec(row: SweepRow) -> SweepSpec:
    return _read(row.spec)


@lru_cache(512)
def _read(text: str) -> SweepSpec:
    return spec.from_json(json.loads(text))


def _summary(
    db: Database,
    row: SweepRow,
    counts: dict[str, int],
    given: SweepSpec,
    top: dict[str, object] | None,
) -> dict[str, object]:
    total = sum(counts.values())
    metric = given.metric
    return {
        "name": row.name,
        "state": sweep_state(db, row, counts),
        "trials": counts,
        "total": max(total, given.total_trials or 0) if given.method in ADAPTIVE else total,
        "method": given.method,
        "metric": None if metric is None else {"name": metric.name, "goal": metric.goal},
        "command": display(given.template.words, given.template.shell),
        "best": top,
        "stopped": row.stopped,
        **sweep_note_json(db, row.id),
    }


def _best(rows: list[Row], metric: Metric) -> dict[str, object] | None:
    if not any(metric.name in row.metrics for row in rows):
        return None
    top = best(rows, f"metric.{metric.name}", metric.goal)
    if top is None:
        return None
    return {
        "trial": top.trial,
        "value": finite(top.metrics[metric.name]),
        "params": finite(top.params),
    }


def _params(given: SweepSpec) -> list[dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for name, value in given.space.constants:
        found[name] = {"name": name, "kind": "constant", "values": [finite(value.data)]}
    for grid in given.space.grids:
        for axis in grid:
            for name, domain in zip(axis.names, axis.domains, strict=True):
                stored = domains.to_json(domain)
                one: dict[str, object] = {"name": name, "kind": stored["kind"]}
                if isinstance(domain, domains.Choices):
                    one["values"] = [finite(value.data) for value in domain.values]
                found.setdefault(name, one)
    return list(found.values())


def _chosen(text: str | None, given: SweepSpec, reported: list[Reported]) -> Metric | None:
    """The requested metric, else the metric of the sweep, else the first that was reported."""
    own = given.metric
    names = list(dict.fromkeys(name for one in reported for name in one.summary))
    if text:
        metric = read_metric(text, [*map(Metric, names), *([] if own is None else [own])])
        if metric.name not in names:
            hint = (
                f"reported metrics: {', '.join(names[:20])}"
                if names
                else "no trial has reported yet"
            )
            raise NotFound(f"no trial has reported `{text}`", hint)
        return metric
    if own is not None:
        return own
    return make_metric(names[0]) if names else None
