"""What jobs have reported, read as far as their files have grown since the last time."""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from stoker.client.reports import JobFiles, Source, collect, curve_of
from stoker.core.metrics.summary import Collector
from stoker.core.states import FINAL
from stoker.results.curves import Point, downsample
from stoker.store import sweeps
from stoker.store.database import Database
from stoker.store.job_queries import JobRow
from stoker.web.responses import finite

T = TypeVar("T")
MOST_POINTS = 2000


class LruCache(Generic[T]):
    """The values that were used last."""

    def __init__(self, most: int) -> None:
        self._most = most
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
            while len(self._values) > self._most:
                self._values.popitem(last=False)


class Reports:
    def __init__(self, state_dir: str) -> None:
        self.places = JobFiles(state_dir)
        self._collected: LruCache[tuple[Collector, bool]] = LruCache(64)
        self._curves: LruCache[tuple[object, list[Point]]] = LruCache(128)
        self._reading = threading.Lock()  # a collector is fed by one thread at a time

    def metrics(self, job: JobRow) -> dict[str, object]:
        """`last`, `min`, `max`, `n` and `step` of each name."""
        source = Source(job.id, job.attempts, job.stdout, job.state in FINAL)
        with self._reading:
            collector, is_whole = self._collected.get(job.id) or (Collector(), False)
            if not is_whole:
                collector = collect(self.places, source, collector)
                self._collected.put(job.id, (collector, source.is_over))
            summary = dict(collector.summary)
        return {
            name: {
                "last": finite(stat.last), "min": finite(stat.min), "max": finite(stat.max),
                "n": stat.n, "step": finite(stat.step),
            }
            for name, stat in summary.items()
        }  # fmt: skip

    def curve(self, source: Source, metric: str, points: int) -> list[object]:
        """[step, value] each; a NaN is a gap, null."""
        key = (source.job, metric)
        stand = self._stand(source)
        known = self._curves.get(key)
        if known is None or known[0] != stand:
            known = (stand, downsample(curve_of(self.places, source, metric), MOST_POINTS))
            self._curves.put(key, known)
        return [finite(point) for point in downsample(known[1], points)]

    def _stand(self, source: Source) -> object:
        """Another value once the files have grown."""
        paths = [self.places.metrics(source.job), source.stdout or ""]
        paths.append(self.places.log(source.job, max(1, source.attempts)))
        return [_size(path) for path in paths]


def params_of(db: Database, job: JobRow) -> dict[str, object]:
    """The parameters of the trial that a job runs."""
    point = sweeps.point_of(db, job.id) if job.sweep is not None else None
    return {name: finite(data) for name, (data, _) in json.loads(point or "{}").items()}


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1
