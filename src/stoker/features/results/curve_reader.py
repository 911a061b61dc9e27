"""Read the curves of a job from its files, incrementally: from where the last read ended."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable

from stoker.features.results.curve_line import CurveLine, Point, add_piece
from stoker.features.results.reports.event_files import EventReader
from stoker.features.results.reports.event_search import new_reports
from stoker.features.results.reports.report_files import LogReader, MetricsReader
from stoker.features.results.reports.reports import JobFiles, Source, log_files, pieces
from stoker.text.progress.report_line import Report


class CurveReader:
    """The curves of some metrics of one job.

    The log is used only for names that never occur in $STOKER_METRICS, TensorBoard's event files
    only for names that occur in neither, and each is read only if there are such names.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._written = {name: CurveLine() for name in names}
        self._printed = {name: CurveLine() for name in self._written}
        self._drawn = {name: CurveLine() for name in self._written}  # of event files
        self._metrics = MetricsReader()
        self._log = LogReader()
        self._log_attempt = 0
        self._events: dict[str, EventReader] = {}
        self.is_complete = False

    def line(self, name: str) -> CurveLine:
        for lines in (self._written, self._printed):
            if lines[name].was_reported:
                return lines[name]
        return self._drawn[name]

    @property
    def size(self) -> int:
        """Approximate size in memory."""
        lines = (*self._written.values(), *self._printed.values(), *self._drawn.values())
        return 1000 + sum(line.size for line in lines)

    def read(self, files: JobFiles, source: Source) -> bool:
        """Add what was written since the last call; the files of a finished job are read once.

        Returns False if a file has become shorter: it was replaced, and a new reader is needed.
        """
        if self.is_complete:
            return True
        path = files.metrics(source.job, source.files_dir)
        if _size(path) < self._metrics.position:
            return False
        for piece in pieces(path, self._metrics.position):
            add_piece(self._written, self._metrics, piece)
        if source.is_finished:
            self._add(self._written, self._metrics.finish(), None)
        others = [name for name, line in self._written.items() if not line.was_reported]
        if others and not self._read_logs(files, source):
            return False
        if not all(self._printed[name].was_reported for name in others):
            for reports in new_reports(files.output(source), self._events):
                self._add(self._drawn, reports, None)
        self.is_complete = source.is_finished
        return True

    def _read_logs(self, files: JobFiles, source: Source) -> bool:
        for number, path in log_files(files, source):
            if number < self._log_attempt:
                continue
            if number > self._log_attempt:
                self._add(self._printed, self._log.finish(), self._log_attempt)
                self._log, self._log_attempt = LogReader(), number
            if _size(path) < self._log.position:
                return False
            for piece in pieces(path, self._log.position):
                self._add(self._printed, self._log.feed(piece), number)
        if source.is_finished:
            self._add(self._printed, self._log.finish(), self._log_attempt)
        return True

    def _add(self, lines: dict[str, CurveLine], reports: list[Report], attempt: int | None) -> None:
        if reports:
            for name, line in lines.items():
                line.add(name, reports, attempt)


def curve_of(files: JobFiles, source: Source, metric: str) -> list[Point]:
    """The (step, value) pairs of one metric, with everything that was written so far."""
    reader = CurveReader([metric])
    reader.read(files, source._replace(is_finished=True))
    return reader.line(metric).points()


def _size(path: str) -> int:
    """The size of a file; 0 if there is none."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


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
