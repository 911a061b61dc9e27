"""How far a running job is: its own reports, its newest metric, and when it likely ends.

The CLI, the Python API and the web UI show what `job_progress` returns.
"""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Iterable

from stoker.engine.model import RunningJob
from stoker.engine.store import job_queries
from stoker.engine.store.database import Database
from stoker.engine.store.job_queries import JobRow
from stoker.engine.store.profiles import seconds_of
from stoker.engine.supervisor.logs import (
    job_folder,
    log_path,
    metrics_path,
    progress_path,
    read_progress,
)
from stoker.engine.supervisor.regular_files import open_for_reading
from stoker.features import call
from stoker.record import Record
from stoker.settings import Settings
from stoker.states import ACTIVE
from stoker.text.durations import format_duration
from stoker.text.progress.progress_number import (
    PROGRESS,
    Remaining,
    StepReport,
    WorkDone,
    progress_bar,
    remaining_time,
    work_done,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stoker.text.progress.report_line import Report

_TAIL_BYTES = 4096  # of metrics and logs; enough for the newest reports
_MAX_REPORTING = 200  # running jobs whose progress a forecast reads


class JobProgress(Record):
    """The progress of a running job. Fields are None if the job does not report them."""

    text: str | None = None  # what it wrote to $STOKER_PROGRESS_FILE, or its newest tqdm bar
    work: WorkDone | None = None
    step: float | None = None  # of its newest report
    metric: str | None = None
    value: object = None
    elapsed: float = 0.0
    remaining: Remaining | None = None

    @property
    def fraction(self) -> float | None:
        """The part of the work that is done: as reported, or by the expected duration."""
        if self.work is not None and self.work.fraction is not None:
            return self.work.fraction
        if self.remaining is None or self.remaining.is_bound:
            return None
        whole = self.elapsed + self.remaining.seconds
        return self.elapsed / whole if whole > 0 else None

    def work_words(self) -> str:
        """The text of the job, with a percentage: `step 120/1000 (12%)`; `step 7` from its metrics.

        "" if it reports nothing.
        """
        if self.text is None:
            return "" if self.step is None else f"step {self.step:.12g}"
        fraction = None if self.work is None else self.work.fraction
        if fraction is None or "%" in self.text:
            return self.text
        return f"{self.text} ({int(100 * fraction)}%)"

    def metric_words(self) -> str:
        """`loss 0.31`; "" without a metric."""
        if self.metric is None:
            return ""
        value = f"{self.value:.4g}" if isinstance(self.value, float) else f"{self.value}"
        return f"{self.metric} {value}"

    def words(self) -> str:
        """`step 120/1000 (12%), loss 0.31, ETA 12m30s`; "" if nothing is known."""
        eta = ""
        if self.remaining is not None and not self.remaining.is_bound:
            eta = eta_words(self.remaining.seconds)
        return ", ".join(filter(None, (self.work_words(), self.metric_words(), eta)))

    def as_json(self) -> dict[str, Any]:
        """For `ls --json`, `status --json` and the web UI."""
        value = self.value
        if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
            value = str(value)  # JSON has no NaN
        reported = self.work is not None and self.work.fraction is not None
        return {
            "text": self.text,
            "done": None if self.work is None else self.work.done,
            "total": None if self.work is None else self.work.total,
            "percent": round(100 * (self.fraction or 0.0), 1) if reported else None,
            "step": self.step,
            "metric": self.metric,
            "value": value,
            "ends_in": None if self.remaining is None else round(self.remaining.seconds, 1),
            "ends_in_source": None if self.remaining is None else self.remaining.source,
        }


def eta_words(seconds: float, *, is_bound: bool = False) -> str:
    """`ETA 12m30s`, or `ETA at most 2h00m` if only a time limit is known."""
    words = format_duration(seconds) if seconds >= 10 else f"{math.ceil(seconds)}s"
    return f"ETA {'at most ' if is_bound else ''}{words}"


def job_progress(
    db: Database, settings: Settings, row: JobRow, now: float | None = None
) -> JobProgress | None:
    """Return how far a job is; None if it does not run."""
    if row.state not in ACTIVE or row.started_at is None:
        return None
    now = time.time() if now is None else now
    place = row.files_dir or settings.state_dir
    folder = job_folder(place, row.id)
    text = read_progress(folder)
    work = None if text is None else work_done(text)
    log = row.stdout or log_path(place, row.id, row.attempts)
    work_file = progress_path(folder)
    if text is None:
        work_file = row.stderr or log
        bar = progress_bar(_end(work_file).decode("utf-8", "replace"), now - row.started_at)
        text, work = bar or (None, None)
    reports = _reports(folder, log, row.attempts)
    metric, value = _newest_metric(reports, _sweep_metric(db, row))
    began = row.started_at
    steps = [
        StepReport(report.step, report.at - began)
        for report in reports
        if report.step is not None and report.at is not None
    ]
    return JobProgress(
        text=text,
        work=work,
        step=next((one.step for one in reversed(reports) if one.step is not None), None),
        metric=metric,
        value=value,
        elapsed=max(0.0, now - began),
        remaining=remaining_time(
            elapsed=max(0.0, now - began),
            work=work,
            work_at=None if work is None else _written_after(work_file, began),
            steps=(steps[0], steps[-1]) if len(steps) > 1 else None,
            is_resumed=row.attempts > 1,
            estimate=seconds_of(db, row.profile),
            limit=row.time_limit,
        ),
    )


def reported_ends(
    db: Database, settings: Settings, running: Iterable[RunningJob]
) -> dict[int, float]:
    """Return the seconds until the ends of running jobs that report their progress, by job."""
    reporting = [
        job.id
        for job in itertools.islice(running, _MAX_REPORTING)
        if os.path.exists(progress_path(job_folder(settings.state_dir, job.id)))
    ]
    found = {}
    for row in job_queries.jobs(db, reporting):
        known = job_progress(db, settings, row)
        if known is not None and known.remaining is not None and known.remaining.source == PROGRESS:
            found[row.id] = known.remaining.seconds
    return found


def _written_after(path: str, began: float) -> float | None:
    """When a file was written, in seconds since `began`."""
    try:
        return max(0.0, os.stat(path).st_mtime - began)
    except OSError:
        return None


def _reports(folder: str, log: str, attempt: int) -> list[Report]:
    """The newest reports of an attempt: from $STOKER_METRICS, or else from its log."""
    lines = _tail(metrics_path(folder))
    if lines:
        from stoker.text.progress.report_line import InvalidReport, read_json_line

        found = []
        for line in lines:
            try:
                report = read_json_line(line)
            except InvalidReport:
                continue
            if report.attempt in (None, attempt):
                found.append(report)
        return found
    return _printed_reports(log)


def _printed_reports(log: str) -> list[Report]:
    lines = [line for line in _tail(log) if b"stoker:" in line]
    if not lines:
        return []
    from stoker.text.progress.report_line import InvalidReport, read_printed_line

    found = []
    for line in lines:
        try:
            report = read_printed_line(line)
        except InvalidReport:
            continue
        if report is not None:
            found.append(report)
    return found


def _tail(path: str) -> list[bytes]:
    """The complete lines at the end of a file."""
    end = _end(path)
    lines = end.split(b"\n")[:-1]
    return lines[1:] if len(end) == _TAIL_BYTES else lines


def _end(path: str) -> bytes:
    """The last bytes of a file; none if it cannot be read."""
    try:
        descriptor = open_for_reading(path)
    except OSError:
        return b""
    try:
        start = max(0, os.fstat(descriptor).st_size - _TAIL_BYTES)
        return os.pread(descriptor, _TAIL_BYTES, start)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _sweep_metric(db: Database, row: JobRow) -> str | None:
    """The metric of the job's sweep; None if it has none."""
    metric: str | None = None if row.sweep is None else call("sweep_metric", db, row.sweep)
    return metric


def _newest_metric(reports: list[Report], wanted: str | None) -> tuple[str | None, object]:
    """The newest value of the metric of the sweep, or else the first one of the newest report."""
    for report in reversed(reports):
        if wanted is not None and wanted in report.values:
            return wanted, report.values[wanted]
    for report in reversed(reports):
        for name, value in report.values.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return name, value
    return None, None
