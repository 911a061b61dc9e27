"""What trials and jobs have reported: files are read as far as they have grown, sums are kept.

The curves stay in the files of the jobs. What was read of an ended job is kept in the store, so a
table of a thousand trials reads each file once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator

from stoker.core.metrics.summary import Collector, Stat
from stoker.core.outcome.log_tail import TAIL_BYTES, last_words, masked
from stoker.core.record import Record
from stoker.core.states import FINAL
from stoker.errors import Error
from stoker.results.curves import curve
from stoker.results.table import Row
from stoker.store import sweeps
from stoker.store.database import Database
from stoker.store.job_queries import JobRow
from stoker.store.sweeps import SweepRow, TrialRow
from stoker.supervisor.logs import job_folder, log_path, metrics_path, stop_path
from stoker.supervisor.regular_files import open_for_reading
from stoker.sweeps.identity import described, template_of
from stoker.sweeps.template.template import Template
from stoker.sweeps.values import point_from_json

_PIECE = 1 << 20
_MOST_FAILURES = 100


class JobFiles(Record):
    """Where the files of jobs are: in a queue's folder, or in that of a foreground run."""

    folder: str
    is_run: bool = False

    def metrics(self, job: int) -> str:
        folder = (
            os.path.join(self.folder, str(job)) if self.is_run else job_folder(self.folder, job)
        )
        return metrics_path(folder)

    def has_stop(self, job: int | None) -> bool:
        """Whether its sweep told a job to leave."""
        return job is not None and os.path.exists(stop_path(job_folder(self.folder, job)))

    def log(self, job: int, number: int) -> str:
        if self.is_run:
            return os.path.join(self.folder, f"{job}.log" if number <= 1 else f"{job}.{number}.log")
        return log_path(self.folder, job, number)


class Source(Record):
    """A job whose reports are wanted."""

    job: int
    attempts: int
    stdout: str | None
    is_over: bool


class Reported(Record):
    """One trial, or one job that belongs to none."""

    row: Row
    summary: dict[str, Stat]
    source: Source | None
    error: str | None  # about lines that could not be read


def of_sweep(db: Database, places: JobFiles, sweep: SweepRow) -> list[Reported]:
    """All trials with what they have reported so far."""
    found, fresh = [], []
    commands = _commands(sweep)
    has_early_stop = bool(json.loads(sweep.spec).get("early_stop"))
    for trial in sweeps.trials(db, sweep.id):
        params = {name: data for name, (data, _) in json.loads(trial.point).items()}
        source = source_of(trial)
        collector = known(trial) or Collector()
        if source is not None and not (trial.reports and source.is_over):
            collector = collect(places, source, collector)
            if source.is_over:
                fresh.append((trial.number, source.job, collector.to_json()))
        row = Row(
            trial.number, trial.job, params, _last(collector), trial.state or "missing",
            _seconds(trial.started_at, trial.ended_at), _extra(trial, commands),
        )  # fmt: skip
        if has_early_stop:
            was_stopped = trial.cause == "stopped_early" or places.has_stop(trial.job)
            row = row._replace(extra={**row.extra, "stopped": "early" if was_stopped else None})
        found.append(Reported(row, collector.summary, source, _error(collector)))
    if fresh:
        try:
            with db.transaction():
                sweeps.note_reports(db, sweep.id, fresh)
        except Error:
            pass  # a read-only or full disk: the next reader reads the files again
    return found


def _commands(sweep: SweepRow) -> tuple[Template, ...]:
    """The commands of a sweep that had several; trials of one need no column for it."""
    stored = json.loads(sweep.spec)
    if not stored.get("earlier"):
        return ()
    return tuple(map(Template.from_json, (stored["template"], *stored["earlier"])))


def _extra(trial: TrialRow, commands: tuple[Template, ...]) -> dict[str, object]:
    if not commands:
        return {}
    own = template_of(commands, point_from_json(trial.point), trial.identity)
    return {"command": None if own is None else described(own)}


def of_jobs(db: Database, places: JobFiles, jobs: Iterable[JobRow]) -> list[Reported]:
    """Jobs by themselves; those that run a trial have its parameters."""
    found = []
    for job in jobs:
        source = Source(job.id, job.attempts, job.stdout, job.state in FINAL)
        collector = collect(places, source, Collector())
        number, point = sweeps.trial_of(db, job.id) or (None, "{}")
        params = {name: data for name, (data, _) in json.loads(point).items()}
        row = Row(
            number, job.id, params, _last(collector), job.state,
            _seconds(job.started_at, job.ended_at), {"name": job.name} if job.name else {},
        )  # fmt: skip
        found.append(Reported(row, collector.summary, source, _error(collector)))
    return found


class Failure(Record):
    """Trials that failed in the same way."""

    trials: int
    job: int  # the newest of them
    words: str


def failures(places: JobFiles, trials: Iterable[TrialRow]) -> list[Failure]:
    """How trials failed, the commonest first; of many failures the newest are looked at."""
    bad = [trial for trial in trials if trial.state in ("failed", "lost") and trial.job is not None]
    found: dict[str, Failure] = {}
    for trial in bad[-_MOST_FAILURES:]:
        assert trial.job is not None
        words = trial.detail or said_last(places, trial.job, trial.attempts or 0, trial.stdout)
        words = words or trial.cause or "no word of it"
        count = found[masked(words)].trials if masked(words) in found else 0
        found[masked(words)] = Failure(count + 1, trial.job, words)
    return sorted(found.values(), key=lambda one: -one.trials)


def said_last(places: JobFiles, job: int, attempts: int, stdout: str | None) -> str | None:
    """The last words in the log of a job's newest attempt."""
    path = stdout or places.log(job, attempts)
    try:
        size = os.stat(path).st_size
    except OSError:
        return None
    return last_words(b"".join(_pieces(path, max(0, size - TAIL_BYTES))))


def keep(db: Database, places: JobFiles, jobs: list[int]) -> None:
    """These jobs are about to be removed with their files: read what they have reported."""
    concerned = sweeps.of_jobs(db, jobs)
    for sweep in sweeps.all_sweeps(db) if concerned else ():
        if sweep.id in concerned:
            of_sweep(db, places, sweep)


def source_of(trial: TrialRow) -> Source | None:
    if trial.job is None or trial.state is None:
        return None
    return Source(trial.job, trial.attempts or 0, trial.stdout, trial.state in FINAL)


def known(trial: TrialRow) -> Collector | None:
    """What was read of it before."""
    if trial.reports is None:
        return None
    try:
        return Collector.from_json(trial.reports)
    except ValueError:
        return None


def collect(places: JobFiles, source: Source, collector: Collector) -> Collector:
    """Read on from where the collector is."""
    _feed(places, source, collector)
    if collector.is_stale:
        collector = collector.again()
        _feed(places, source, collector)
    if source.is_over:
        collector.finish()
    return collector


def _feed(places: JobFiles, source: Source, collector: Collector) -> None:
    metrics = places.metrics(source.job)
    for piece in _pieces(metrics, collector.metrics.position):
        collector.feed_metrics(piece)
    for number, path in _logs(places, source):
        if number >= collector.log_attempt:
            start = collector.log.position if number == collector.log_attempt else 0
            for piece in _pieces(path, start):
                collector.feed_log(piece, number)
            collector.is_printed_later = _written_at(path) >= _written_at(metrics)


def curve_of(places: JobFiles, source: Source, metric: str) -> list[tuple[float, float]]:
    """(step, value) of one metric."""
    logs = ((number, _pieces(path)) for number, path in _logs(places, source))
    return curve(metric, _pieces(places.metrics(source.job)), logs)


def _logs(places: JobFiles, source: Source) -> list[tuple[int, str]]:
    if source.stdout is not None:  # the user's own file holds all attempts
        return [(max(1, source.attempts), source.stdout)]
    return [(n, places.log(source.job, n)) for n in range(1, source.attempts + 1)]


def _pieces(path: str, start: int = 0) -> Iterator[bytes]:
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


def _written_at(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _last(collector: Collector) -> dict[str, object]:
    return {name: stat.last for name, stat in collector.summary.items()}


def _seconds(started: float | None, ended: float | None) -> float | None:
    if started is None:
        return None
    if ended is None:
        import time

        ended = time.time()
    return max(0.0, round(ended - started, 3))


def _error(collector: Collector) -> str | None:
    if collector.first_invalid is None:
        return None
    where = collector.first_invalid
    more = f" and {collector.invalid_lines - 1} more" if collector.invalid_lines > 1 else ""
    return f"line {where.line} of its {where.source}{more}: {where.reason}"
