"""Metrics that jobs reported. Files are read incrementally, from where the last read ended."""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

from stoker.engine.store import job_queries
from stoker.engine.store.database import Database
from stoker.engine.store.job_queries import JobRow
from stoker.engine.supervisor.mounts import Mounts
from stoker.features.results.chart import Curve, reduced
from stoker.features.results.curve_reader import CurveCache
from stoker.features.results.reports.reports import (
    JobFiles,
    Reported,
    Source,
    collect,
    job_reports,
    source_of_job,
)
from stoker.features.results.reports.summary import Collector
from stoker.features.sweeps import store as sweeps
from stoker.settings import Settings
from stoker.text.commands.command_params import command_params
from stoker.text.commands.shell_words import CALL_MODULE
from stoker.text.finite_values import finite

T = TypeVar("T")


class LruCache(Generic[T]):
    """A thread-safe cache that keeps the most recently used values."""

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> T | None:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: Hashable, value: T) -> None:
        with self._lock:
            self._values[key] = value
            while len(self._values) > self._max_entries:
                self._values.popitem(last=False)


class Reports:
    """Summaries and curves of metrics, cached by job."""

    def __init__(self, state_dir: str) -> None:
        self.places = JobFiles(state_dir)
        self._collected: LruCache[tuple[Collector, bool]] = LruCache(512)
        self.curves = CurveCache(self.places)
        self._reading = threading.Lock()  # a collector is not thread-safe

    def metrics(self, job: JobRow) -> dict[str, object]:
        """`last`, `min`, `max`, `n` and `step` of each metric."""
        with self._reading:
            summary = dict(self._collect(job).summary)
        return {
            name: {
                "last": finite(stat.last),
                "min": finite(stat.min),
                "max": finite(stat.max),
                "n": stat.n,
                "step": finite(stat.step),
            }
            for name, stat in summary.items()
        }

    def of_jobs(self, db: Database, ids: list[int]) -> list[Reported]:
        """The reports of jobs, as `job_reports` returns them."""
        jobs = job_queries.jobs(db, ids)
        with self._reading:
            return job_reports(db, self.places, jobs, self._collect)

    def _collect(self, job: JobRow) -> Collector:
        source = source_of_job(job)
        collector, is_complete = self._collected.get(job.id) or (Collector(), False)
        if not is_complete:
            collector = collect(self.places, source, collector)
            self._collected.put(job.id, (collector, source.is_finished))
        return collector

    def curve(self, source: Source, metric: str, points: int) -> list[object]:
        """A list of [step, value]; NaN becomes None, a gap in the curve."""
        line = self.curves.lines(source, [metric])[metric]
        curve = reduced(Curve(line.steps, line.values), points)
        return [finite(point) for point in curve.points()]


def params_of(db: Database, job: JobRow) -> dict[str, object]:
    """The parameters of the trial that a job belongs to; of other commands, their options."""
    if job.sweep is None:
        is_call = not job.shell and CALL_MODULE in job.argv
        return {} if is_call else command_params(job.argv, job.shell)
    point = sweeps.point_of(db, job.id)
    return {name: finite(data) for name, (data, _) in json.loads(point or "{}").items()}


def metrics_of(settings: Settings, job: JobRow) -> dict[str, Any] | None:
    """The metrics of a job as `Reports.metrics` returns them; None if its files are on a file
    system that may not answer."""
    paths = [os.fsencode(path) for path in (job.stdout, job.files_dir) if path]
    if Mounts().any_may_hang(paths, []):
        return None
    return Reports(settings.state_dir).metrics(job)
