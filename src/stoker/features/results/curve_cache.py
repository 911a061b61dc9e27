"""Curves of jobs, kept in memory up to a limit, so that only new reports are parsed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable

from stoker.features.results.curve_line import CurveLine
from stoker.features.results.curve_reader import CurveReader
from stoker.features.results.reports.reports import JobFiles, Source

MAX_BYTES = 256 << 20  # 24 bytes a point: 5 metrics of 2,000 jobs with 1,000 steps


class CurveCache:
    """The curves of the jobs that were used most recently. Thread-safe.

    Callers must not change a line that they got.
    """

    def __init__(self, files: JobFiles, max_bytes: int = MAX_BYTES) -> None:
        self._files = files
        self.max_bytes = max_bytes
        self._jobs: OrderedDict[int, _JobCurves] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        return self._size

    def lines(self, source: Source, names: Iterable[str]) -> dict[str, CurveLine]:
        """The curves of these metrics, with everything that the job has reported so far."""
        with self._lock:
            job = self._jobs.get(source.job)
            if job is None:
                job = self._jobs[source.job] = _JobCurves()
            self._jobs.move_to_end(source.job)
        with job.lock:
            found = job.lines(self._files, source, names)
            size = sum(reader.size for reader in job.readers)
        with self._lock:
            if self._jobs.get(source.job) is job:  # it was not dropped meanwhile
                self._size += size - job.size
                job.size = size
            while self._size > self.max_bytes and len(self._jobs) > 1:
                _, dropped = self._jobs.popitem(last=False)
                self._size -= dropped.size
        return found


class _JobCurves:
    """The readers of one job: one for each set of metrics that was asked for together."""

    def __init__(self) -> None:
        self.readers: list[CurveReader] = []
        self.size = 0
        self.lock = threading.Lock()
        self._by_name: dict[str, CurveReader] = {}

    def lines(self, files: JobFiles, source: Source, names: Iterable[str]) -> dict[str, CurveLine]:
        names = list(names)
        needed = {id(reader): reader for reader in map(self._by_name.get, names) if reader}
        for reader in needed.values():
            if not reader.read(files, source):
                self.readers.clear()
                self._by_name.clear()
                break
        new = [name for name in names if name not in self._by_name]
        if new:
            reader = CurveReader(new)
            reader.read(files, source)
            self.readers.append(reader)
            self._by_name.update(dict.fromkeys(new, reader))
        # Another thread may add to the line of a running job while this one uses it.
        return {
            name: self._by_name[name].line(name)
            if self._by_name[name].is_complete
            else self._by_name[name].line(name).copy()
            for name in names
        }
