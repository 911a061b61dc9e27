"""Progress of `stoker run` on stderr, its summary and its exit code."""

from __future__ import annotations

import os
import sys
import time

from stoker.cli.output import as_json, notice, report_change
from stoker.cli.run.run_sources import LineSource, WordSource
from stoker.cli.verbs.wait import code_of
from stoker.client.views import job as views
from stoker.engine.daemon.foreground import Foreground
from stoker.engine.daemon.interfaces import EventListener
from stoker.engine.model import Outcome
from stoker.engine.outcome.retry import Verdict
from stoker.engine.store import job_queries
from stoker.engine.store.database import Database
from stoker.engine.supervisor.logs import run_log_path
from stoker.record import Record
from stoker.states import FINAL, WAITING
from stoker.text.command_line import Parsed
from stoker.text.commands.shell_words import display
from stoker.text.durations import format_duration
from stoker.text.terminal import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.cli.run.run_sweep import SweepSource

_REDRAW_SECONDS = 0.1
_NAMED = 20  # failures that are printed one by one


class Screen(EventListener):
    """Redraws one progress line, and prints failed jobs as they end."""

    def __init__(
        self,
        parsed: Parsed,
        db: Database,
        folder: str,
        streams: bool,
        source: LineSource | WordSource | SweepSource,
        total: int | None = None,
    ) -> None:
        self._db = db
        self._source = source
        self._folder = folder
        self._streams = streams
        self._quiet = bool(parsed["quiet"]) or bool(parsed["json"])
        self._live = sys.stderr.isatty() and not self._quiet and not streams
        self._began = time.monotonic()
        self._drawn_at = 0.0
        self._line = ""
        self._total = total  # jobs in the input, if it is a file
        # A single command prints its own errors.
        self._names_failures = not self._quiet and not isinstance(source, WordSource)
        self._started: dict[int, float] = {}  # when running jobs began (monotonic)
        self._seconds = 0.0  # of all jobs that succeeded
        self.done = 0
        self.failed = 0
        self.cancelled = 0
        self.foreground: Foreground | None = None

    def ordered(self, job: int, devices: tuple[int, ...]) -> None:
        if self._live:
            self._started[job] = time.monotonic()

    def finished(self, job: int, outcome: Outcome, verdict: Verdict) -> None:
        began = self._started.pop(job, None)
        if began is not None and verdict.event == "succeed":
            self._seconds += time.monotonic() - began
        if verdict.event == "return":
            return
        if self.foreground is not None:
            self.foreground.finished_one()
        if not isinstance(self._source, (LineSource, WordSource)):
            self._source.ended(job, verdict, outcome.detail)
            if self._source.stopped and self.foreground is not None and self.foreground.takes_work:
                self.foreground.drain()
                self.message(self._source.stopped)
        if verdict.event == "succeed":
            self.done += 1
            return
        if verdict.event == "cancel":
            self.cancelled += 1
        else:
            self.failed += 1
        if self._names_failures and self.failed + self.cancelled <= _NAMED:
            self._clear()
            row = job_queries.job(self._db, job)
            words = views.result_words(row)
            log = run_log_path(self._folder, job, row.attempts)
            notice(
                f"job {job} {row.state}: {words}  {printable(display(row.argv, row.shell))[:60]}"
                + ("" if self._streams else f"\n  log: {log}")
            )

    def committed(self) -> None:
        pass

    def message(self, text: str) -> None:
        self._clear()
        notice(text)

    def redraw(self) -> float | None:
        """Redraw the progress line; returns when to call again (monotonic), or None."""
        if not self._live:
            return None
        now = time.monotonic()
        if now - self._drawn_at >= _REDRAW_SECONDS:
            self._drawn_at = now
            running = self.foreground.running if self.foreground is not None else 0
            failed = f", {self.failed} failed" if self.failed else ""
            total = "" if self._total is None else f" of {self._total - self._source.skipped}"
            self._clear()
            self._line = (
                f"{self.done}{total} done{failed}, {running} running, "
                f"{format_duration(now - self._began)}{self._eta(now)}"
            )
            notice(self._line, end="")
        return self._drawn_at + 1.0

    def _eta(self, now: float) -> str:
        """When the last job likely ends, by the mean duration of finished ones; "" if unknown."""
        if self._total is None or not self.done:
            return ""
        from stoker.client.views.job_progress import eta_words
        from stoker.engine.policy.finish_forecast import Interval, Work, finish_forecast

        mean = self._seconds / self.done
        ages = [now - began for began in self._started.values()]
        running = [Interval(0.0, mean - age if mean > age else age / 2) for age in ages]
        ended = self.done + self.failed + self.cancelled + self._source.skipped
        left = max(0, self._total - ended - len(running))
        finish = finish_forecast(running, [], [Work(left, mean)])
        return "" if finish is None else f", {eta_words(finish.seconds)}"

    def _clear(self) -> None:
        if self._line:
            notice("\r" + " " * len(self._line) + "\r", end="")
            self._line = ""

    def close(self) -> None:
        self._clear()


class NotRun(Record):
    """What a run that was stopped did not run."""

    not_started: int = 0
    not_retried: int = 0  # failed, and would have been retried
    is_unread: bool = False  # the pipe may have more jobs

    def words(self) -> str:
        parts = []
        if self.not_started:
            parts.append(f"{self.not_started} not started")
        if self.not_retried:
            parts.append(f"{self.not_retried} not retried")
        if self.is_unread:
            parts.append("the rest of the input was not read")
        return ", ".join(parts)


def print_summary(
    parsed: Parsed,
    db: Database,
    folder: str,
    path: str | None,
    source: LineSource | WordSource | SweepSource,
    screen: Screen,
    interrupts: int,
) -> int:
    """Print the summary and return the exit code."""
    if isinstance(source, WordSource):
        return _end_of_command(parsed, db, interrupts)
    left = _left(db, source)
    again = _how_to_resume(parsed, path, source) if left.words() else ""
    if parsed["json"]:
        _print_results(db, folder, left, _summary(screen, source.skipped, left))
    if not parsed["json"] and not parsed["quiet"]:
        where = "" if parsed["stream"] else f"; logs in {folder}"
        notice(f"{_summary(screen, source.skipped, left)}{again}{where}")
        if not isinstance(source, LineSource):
            source.print_results()
    elif left.words():  # printed even with --quiet: the run is incomplete
        notice(f"{left.words()}{again}")
    return 130 if interrupts else min(screen.failed, 101)


def _end_of_command(parsed: Parsed, db: Database, interrupts: int) -> int:
    row = job_queries.jobs_in_states(db, (*FINAL, "queued"), 1, newest_first=True)
    code = code_of(row[0]) if row else 1
    if row and row[0].detail:
        word = parsed.words[0]
        is_one_word = len(parsed.words) == 1 and not parsed.dashed and len(word.split()) == 1
        if code == 127 and is_one_word:
            notice(f"error: there is no job file or program `{printable(word)}`")
            return code
        notice(f"error: {row[0].detail}")
        if code == 127 and not parsed.dashed and os.path.isfile(word):
            notice(f"hint: a job file takes no arguments: stoker run {printable(word)}")
    return 130 if interrupts and row and row[0].state == "cancelled" else code


def _left(db: Database, source: LineSource | SweepSource) -> NotRun:
    waiting = job_queries.jobs_in_states(db, WAITING, 10**9)
    retried = sum(1 for row in waiting if row.attempts)
    unread = source.count_unread() if isinstance(source, LineSource) else None
    is_unread = unread is None and not source.at_end
    return NotRun(len(waiting) - retried + (unread or 0), retried, is_unread)


def _summary(screen: Screen, skipped: int, left: NotRun) -> str:
    parts = [f"{screen.done} done"]
    if screen.failed:
        parts.append(f"{screen.failed} failed")
    if screen.cancelled:
        parts.append(f"{screen.cancelled} cancelled")
    if skipped:
        parts.append(f"{skipped} skipped (done before)")
    return ", ".join(filter(None, (*parts, left.words())))


def _how_to_resume(parsed: Parsed, path: str | None, source: LineSource | SweepSource) -> str:
    if not isinstance(source, LineSource):
        return "; run the same command again to continue"
    has_name = path != "-" or parsed["log_dir"]
    return "; continue with --resume" if has_name else ""


def _print_results(db: Database, folder: str, left: NotRun, summary: str) -> None:
    rows = job_queries.jobs_in_states(db, FINAL, 10**9)
    jobs = [
        {
            "id": row.id,
            "state": row.state,
            "cause": row.cause,
            "command": display(row.argv, row.shell),
            "exit_code": views.exit_code(row),
            "signal": views.signal_number(row),
            "devices": list(row.devices),
            "attempts": row.attempts,
            "started_at": views.iso(row.started_at),
            "ended_at": views.iso(row.ended_at),
        }
        for row in rows
    ]
    text = as_json(
        log_dir=folder, not_started=left.not_started, not_retried=left.not_retried, jobs=jobs
    )
    report_change(text, f"{summary}; logs in {folder}")
