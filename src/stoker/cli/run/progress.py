"""Progress of `stoker run` on stderr."""

from __future__ import annotations

import sys
import time

from stoker.cli.output import notice
from stoker.cli.run.run_sources import LineSource, WordSource
from stoker.client.views import job as views
from stoker.engine.daemon.foreground import Foreground
from stoker.engine.daemon.interfaces import EventListener
from stoker.engine.model import Outcome
from stoker.engine.outcome.retry import Verdict
from stoker.engine.store import job_queries
from stoker.engine.store.database import Database
from stoker.engine.supervisor.logs import run_log_path
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
