"""What `stoker top` reads on demand, each in a thread with its own database connection."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from stoker.client.live.log_view import Renderings, Wanted, log_of_job, read_lines
from stoker.client.queue import Queue
from stoker.client.views import job as views
from stoker.client.views import why as wait_reasons
from stoker.client.views.job_filter import matching_jobs
from stoker.client.views.job_progress import job_progress
from stoker.engine.store import job_queries
from stoker.errors import NotFound
from stoker.features.results.figure import Figure, TrialCurve, learning_curves
from stoker.features.results.reports.metric_cache import Reports
from stoker.features.results.reports.reports import source_of_job
from stoker.features.sweeps.sweeps_view import SweepCache
from stoker.features.top.job_text import Reported
from stoker.record import Record
from stoker.states import WAITING

_CURVES = 40  # of a sweep, the best trials
_POINTS = 400
_MAX_METRICS = 50


class Details(Record):
    """What the live state does not have of the visible jobs and of the selected one."""

    reported: Mapping[int, Reported] = MappingProxyType({})
    job: int | None = None
    why: Mapping[str, object] = MappingProxyType({})  # fields of `job` that say why it waits
    figure_of: int | str | None = None  # a job or a sweep
    figure: Figure | None = None


class Readings:
    """Reads logs, reports and curves; caches what was read of growing files."""

    def __init__(self, state_dir: str) -> None:
        self._reports = Reports(state_dir)
        self._renderings = Renderings()
        self.sweeps = SweepCache(self._reports)

    def matches(self, queue: Queue, text: str) -> list[int]:
        return matching_jobs(queue, text.split())

    def rows(self, queue: Queue, ids: Iterable[int]) -> dict[int, dict[str, Any]]:
        """Jobs as JSON; jobs that were removed are missing."""
        found = {}
        now = time.time()
        with queue.db.reading():
            for id in ids:
                try:
                    row = job_queries.job(queue.db, id)
                except NotFound:
                    continue
                found[id] = views.job_json(queue.db, queue.settings, row)
                found[id]["why"] = views.waiting_words(queue.db, row, now)
        return found

    def details(
        self,
        queue: Queue,
        ids: set[int],
        selected: int | None,
        why_of: int | None,
        row: int | str | None,
        number: int,
    ) -> Details:
        """`ids`: running jobs; `row`: the job or sweep whose curve is shown."""
        reported = self._reported(queue, ids if selected is None else ids | {selected}, selected)
        why = {} if why_of is None else self._why(queue, why_of)
        figure = None if row is None else self._figure(queue, row, number)
        return Details(reported, why_of, why, row, figure)

    def _why(self, queue: Queue, id: int) -> dict[str, Any]:
        """The fields of a waiting job that say why it waits; empty for other jobs."""
        try:
            row = job_queries.job(queue.db, id)
        except NotFound:
            return {}
        if row.state not in WAITING:
            return {}
        found = wait_reasons.explain_wait(queue.db, queue.settings, row)
        starts_at = None if found.starts_in is None else time.time() + found.starts_in
        return {"why": "; ".join(found.reasons), "starts_at": starts_at}

    def _reported(self, queue: Queue, ids: set[int], selected: int | None) -> dict[int, Reported]:
        """Progress of jobs; of the selected one also its metrics."""
        found = {}
        for id in ids:
            try:
                row = job_queries.job(queue.db, id)
            except NotFound:
                continue
            known = job_progress(queue.db, queue.settings, row)
            metrics = self._reports.metrics(row) if id == selected else {}
            found[id] = Reported(
                "" if known is None else known.words(),
                tuple(_last(name, stat) for name, stat in list(metrics.items())[:_MAX_METRICS]),
            )
        return found

    def log(self, queue: Queue, id: int, wanted: Wanted) -> tuple[dict[str, Any], str | None]:
        """A part of the log of a job, and the path of its file."""
        log = log_of_job(queue, id, None, "stdout")
        return read_lines(log, wanted, self._renderings), log.path

    def _figure(self, queue: Queue, row: int | str, number: int) -> Figure | None:
        """The curves of a job (its id) or a sweep (its name)."""
        if isinstance(row, int):
            return self._job_figure(queue, row, number)
        return self._sweep_figure(queue, row, number)

    def _job_figure(self, queue: Queue, id: int, number: int) -> Figure | None:
        """The curve of a metric of a job, the `number`-th one; None if it reported none."""
        row = job_queries.job(queue.db, id)
        names = list(self._reports.metrics(row))
        if not names:
            return None
        name = names[number % len(names)]
        points = self._reports.curve(source_of_job(row), name, _POINTS)
        figure = learning_curves([TrialCurve(id, _points(points), f"job {id}")], name, None)
        return _of_one_job(figure, f"{name} of job {id}", number % len(names) + 1, len(names))

    def _sweep_figure(self, queue: Queue, name: str, number: int) -> Figure | None:
        """The curves of the trials of a sweep: of its metric, or the next one that was reported."""
        wanted = self.sweeps.metric_names(queue.db, name)
        text = wanted[number % len(wanted)] if wanted else None
        found: Any = self.sweeps.curves(queue.db, name, text, _CURVES, _POINTS)
        metric = found["metric"]
        if metric is None or not found["curves"]:
            return None
        curves = [
            TrialCurve(
                one["trial"],
                _points(one["points"]),
                ", ".join(f"{key}={value}" for key, value in one["params"].items()),
                one["result"],
            )
            for one in found["curves"]
        ]
        return learning_curves(curves, metric["name"], metric["goal"])


def _of_one_job(figure: Figure, title: str, number: int, count: int) -> Figure:
    """The figure of one curve, which needs no legend."""
    panels = tuple(
        panel._replace(series=tuple(one._replace(label="") for one in panel.series))
        for panel in figure.panels
    )
    note = f"metric {number} of {count}: m shows the next" if count > 1 else ""
    return figure._replace(title=title, panels=panels, note=note)


def _last(name: str, stat: Any) -> tuple[str, object]:
    return name, stat["last"]


def _points(points: Any) -> list[tuple[float, float]]:
    """Points with None for NaN, as in JSON, as numbers."""
    return [(x, float("nan") if y is None else y) for x, y in points]
