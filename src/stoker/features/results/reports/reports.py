"""Reports of trials and jobs: read the new part of their files and update the summaries.

Curves stay in the files of the jobs. The summary of a finished job is stored in the database, so a
table of a thousand trials reads each file once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator

from stoker.engine.outcome.log_tail import TAIL_BYTES, last_error, masked
from stoker.engine.outcome.wait_status import exit_code_of
from stoker.engine.store.database import Database
from stoker.engine.store.job_queries import JobRow
from stoker.engine.supervisor.logs import (
    job_folder,
    log_path,
    metrics_path,
    run_log_path,
    stop_path,
)
from stoker.engine.supervisor.regular_files import open_for_reading
from stoker.errors import Error
from stoker.features.results.reports.event_files import EventReader
from stoker.features.results.reports.event_search import event_files, new_reports
from stoker.features.results.reports.summary import Collector, Stat
from stoker.features.results.table import Row
from stoker.features.sweeps import store as sweeps
from stoker.features.sweeps.spec.identity import describe_template, template_of
from stoker.features.sweeps.spec.values import point_from_json
from stoker.features.sweeps.store import SweepRow, TrialRow
from stoker.features.sweeps.store_provenance import trial_codes
from stoker.features.sweeps.template.template import Template
from stoker.record import Record
from stoker.states import FINAL

_PIECE = 1 << 20
_MAX_FAILURES = 100


class JobFiles(Record):
    """The paths of job files, in the folder of a queue or of a foreground run.

    `elsewhere`: the folder of a backend (`files_dir` of a row); None: the folder of the queue.
    """

    folder: str
    is_run: bool = False

    def metrics(self, job: int, elsewhere: str | None = None) -> str:
        if self.is_run:
            return metrics_path(os.path.join(self.folder, str(job)))
        return metrics_path(job_folder(elsewhere or self.folder, job))

    def stop_file(self, job: int, elsewhere: str | None = None) -> str:
        """Exists if the sweep of the job has requested that it stop early."""
        return stop_path(job_folder(elsewhere or self.folder, job))

    def output(self, source: Source) -> str:
        """$STOKER_OUTPUT_DIR of a job."""
        if source.output_dir is not None:
            return source.output_dir
        if self.is_run:
            return os.path.join(self.folder, str(source.job))
        return job_folder(source.files_dir or self.folder, source.job)

    def log(self, job: int, number: int, elsewhere: str | None = None) -> str:
        if self.is_run:
            return run_log_path(self.folder, job, number)
        return log_path(elsewhere or self.folder, job, number)


class Source(Record):
    """A job whose reports are read."""

    job: int
    attempts: int
    stdout: str | None
    is_finished: bool
    files_dir: str | None = None
    output_dir: str | None = None  # None: the job's own folder


class Reported(Record):
    """The reports of one trial, or of one job that is not part of a sweep."""

    row: Row
    summary: dict[str, Stat]
    source: Source | None
    error: str | None  # about lines that cannot be parsed


# The stored reports of a trial, and what they mean; by number of the trial.
KnownReports = dict[int, tuple[str, Collector]]


def sweep_reports(
    db: Database, files: JobFiles, sweep: SweepRow, known: KnownReports | None = None
) -> list[Reported]:
    """All trials of a sweep with their reports so far; saves the summaries of finished jobs.

    `known`: for a caller that asks again; it saves half of the time.
    """
    found, fresh = [], []
    commands = _commands(sweep)
    codes = trial_codes(db, sweep.id).labels
    stored = json.loads(sweep.spec)
    has_early_stop = bool(stored.get("early_stop"))
    # The metric of a sweep is a column before the first report.
    declared = [stored["metric"]["name"]] if stored.get("metric") else []
    for trial in sweeps.trials(db, sweep.id):
        params = {name: data for name, (data, _) in json.loads(trial.point).items()}
        source = source_of(trial)
        is_complete = source is None or bool(trial.reports and source.is_finished)
        collector = _stored(trial, known if is_complete else None) or Collector()
        if source is not None and not is_complete:
            collector = collect(files, source, collector)
            if source.is_finished:
                fresh.append((trial.number, source.job, collector.to_json()))
        row = Row(
            trial.number,
            trial.job,
            params,
            _last(collector, declared),
            trial.state or "missing",
            _seconds(trial.started_at, trial.ended_at),
            _extra(trial, commands, codes),
            _end(trial.state, trial.cause, trial.status, trial.detail),
        )
        if has_early_stop:
            was_stopped = trial.cause == "stopped_early" or has_stop(files, trial)
            row = row._replace(extra={**row.extra, "stopped": "early" if was_stopped else None})
        found.append(Reported(row, collector.summary, source, report_error(collector)))
    if fresh:
        try:
            with db.transaction():
                sweeps.save_reports(db, sweep.id, fresh)
        except Error:
            pass  # a read-only or full disk: the next reader reads the files again
    return found


def _end(
    state: str | None, cause: str | None, status: int | None, detail: str | None
) -> dict[str, object]:
    """The columns `result`, `cause` and `exit` of a finished job."""
    if state not in FINAL:
        return {}
    from stoker.client.views.job import ended_words

    return {
        "result": ended_words(state, cause, status, detail),
        "cause": cause,
        "exit": exit_code_of(status),
    }


def _commands(sweep: SweepRow) -> tuple[Template, ...]:
    """All commands of a sweep whose command was changed; empty if it has only one."""
    stored = json.loads(sweep.spec)
    if not stored.get("earlier"):
        return ()
    return tuple(map(Template.from_json, (stored["template"], *stored["earlier"])))


def _extra(
    trial: TrialRow, commands: tuple[Template, ...], codes: dict[int, str]
) -> dict[str, object]:
    """Columns that a sweep has only after an edit: of its command, or of the code."""
    extra: dict[str, object] = {"code": codes.get(trial.number)} if codes else {}
    if commands:
        own = template_of(commands, point_from_json(trial.point), trial.identity)
        extra["command"] = None if own is None else describe_template(own)
    return extra


def job_reports(
    db: Database,
    files: JobFiles,
    jobs: Iterable[JobRow],
    collected: Callable[[JobRow], Collector] | None = None,
) -> list[Reported]:
    """The reports of single jobs; a job of a trial has the parameters of the trial.

    `collected` returns the reports of a job; None: they are read from its files.
    """
    found = []
    for job in jobs:
        source = source_of_job(job)
        collector = collect(files, source, Collector()) if collected is None else collected(job)
        number, point = sweeps.trial_of(db, job.id) or (None, "{}")
        params = {name: data for name, (data, _) in json.loads(point).items()}
        row = Row(
            number,
            job.id,
            params,
            _last(collector),
            job.state,
            _seconds(job.started_at, job.ended_at),
            {"name": job.name} if job.name else {},
            _end(job.state, job.cause or job.attempt_cause, job.status, job.detail),
        )
        found.append(Reported(row, collector.summary, source, report_error(collector)))
    return found


class Failure(Record):
    """Trials that failed in the same way."""

    trials: int
    job: int  # the newest of them
    message: str


def failures(files: JobFiles, trials: Iterable[TrialRow]) -> list[Failure]:
    """Failures grouped by message, most frequent first; only the newest trials are considered."""
    bad = [trial for trial in trials if trial.state in ("failed", "lost") and trial.job is not None]
    found: dict[str, Failure] = {}
    for trial in bad[-_MAX_FAILURES:]:
        assert trial.job is not None
        path = trial.stdout or files.log(trial.job, trial.attempts or 0, trial.files_dir)
        message = trial.detail or last_logged_error(path)
        message = message or trial.cause or "unknown cause"
        count = found[masked(message)].trials if masked(message) in found else 0
        found[masked(message)] = Failure(count + 1, trial.job, message)
    return sorted(found.values(), key=lambda one: -one.trials)


def last_logged_error(path: str) -> str | None:
    """The last error in a log; None if it is empty."""
    try:
        size = os.stat(path).st_size
    except OSError:
        return None
    return last_error(b"".join(pieces(path, max(0, size - TAIL_BYTES))))


def save_before_removal(db: Database, jobs: list[int]) -> None:
    """Save the summaries of jobs that are about to be removed with their files."""
    affected = sweeps.of_jobs(db, jobs)
    for sweep in sweeps.all_sweeps(db) if affected else ():
        if sweep.id in affected:
            sweep_reports(db, JobFiles(db.folder), sweep)


def source_of(trial: TrialRow) -> Source | None:
    if trial.job is None or trial.state is None:
        return None
    return Source(
        job=trial.job,
        attempts=trial.attempts or 0,
        stdout=trial.stdout,
        is_finished=trial.state in FINAL,
        files_dir=trial.files_dir,
        output_dir=trial.output_dir,
    )


def source_of_job(row: JobRow) -> Source:
    return Source(
        job=row.id,
        attempts=row.attempts,
        stdout=row.stdout,
        is_finished=row.state in FINAL,
        files_dir=row.files_dir,
        output_dir=row.output_dir,
    )


def has_stop(files: JobFiles, trial: TrialRow) -> bool:
    """Whether the sweep of a trial has requested that it stop early."""
    return trial.job is not None and os.path.exists(files.stop_file(trial.job, trial.files_dir))


def _stored(trial: TrialRow, known: KnownReports | None) -> Collector | None:
    """The stored collector of a trial, from `known` if it is there; it must not be changed then."""
    if known is None or trial.reports is None:
        return stored_collector(trial)
    before = known.get(trial.number)
    if before is not None and before[0] == trial.reports:
        return before[1]
    collector = stored_collector(trial)
    if collector is not None:
        known[trial.number] = trial.reports, collector
    return collector


def stored_collector(trial: TrialRow) -> Collector | None:
    """The stored collector of a trial; None if there is none or it is damaged."""
    return restored(trial.reports)


def restored(reports: str | None) -> Collector | None:
    """A collector from its stored state; None if there is none or it is damaged."""
    if reports is None:
        return None
    try:
        return Collector.from_json(reports)
    except ValueError:
        return None


def collect(files: JobFiles, source: Source, collector: Collector) -> Collector:
    """Read what was added to the files since the last call; returns the updated collector."""
    _feed(files, source, collector)
    if collector.is_stale:
        collector = collector.again()
        _feed(files, source, collector)
    if source.is_finished:
        collector.finish()
    return collector


def _feed(files: JobFiles, source: Source, collector: Collector) -> None:
    metrics = files.metrics(source.job, source.files_dir)
    for piece in pieces(metrics, collector.metrics.position):
        collector.feed_metrics(piece)
    for number, path in log_files(files, source):
        if number >= collector.log_attempt:
            start = collector.log.position if number == collector.log_attempt else 0
            for piece in pieces(path, start):
                collector.feed_log(piece, number)
            collector.is_printed_later = _written_at(path) >= _written_at(metrics)
    for reports in new_reports(files.output(source), collector.events):
        collector.add_events(reports)


def report_sizes(files: JobFiles, source: Source) -> tuple[int, ...]:
    """The sizes of the files with reports of a job, which change when it reports more."""
    log = source.stdout or files.log(source.job, max(1, source.attempts), source.files_dir)
    folder = files.output(source)
    paths = [files.metrics(source.job, source.files_dir), log]
    paths += (os.path.join(folder, path) for path in event_files(folder))
    return tuple(_size(path) for path in paths)


def log_files(files: JobFiles, source: Source) -> list[tuple[int, str]]:
    """(attempt, path) of the logs of a job."""
    if source.stdout is not None:  # a file chosen by the user holds all attempts
        return [(max(1, source.attempts), source.stdout)]
    numbers = range(1, source.attempts + 1)
    return [(number, files.log(source.job, number, source.files_dir)) for number in numbers]


def pieces(path: str, start: int = 0) -> Iterator[bytes]:
    """The content of a file from a position on; empty if it cannot be read."""
    try:
        descriptor = open_for_reading(path)
    except OSError:
        return
    try:
        while piece := os.pread(descriptor, _PIECE, start):
            yield piece
            start += len(piece)
    except OSError:
        return  # a failing disk: the next reader tries again
    finally:
        os.close(descriptor)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def _written_at(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _last(collector: Collector, declared: Iterable[str] = ()) -> dict[str, object]:
    last: dict[str, object] = {name: stat.last for name, stat in collector.summary.items()}
    for name in declared:
        last.setdefault(name, None)
    return last


def _seconds(started: float | None, ended: float | None) -> float | None:
    if started is None:
        return None
    if ended is None:
        import time

        ended = time.time()
    return max(0.0, round(ended - started, 3))


def report_error(collector: Collector) -> str | None:
    """What cannot be parsed in the reports of a job; None if everything can."""
    if collector.first_invalid is None:
        return None
    where = collector.first_invalid
    more = f" and {collector.invalid_lines - 1} more" if collector.invalid_lines > 1 else ""
    unit = "record" if where.source == EventReader.source else "line"
    return f"{unit} {where.line} of its {where.source}{more}: {where.reason}"
