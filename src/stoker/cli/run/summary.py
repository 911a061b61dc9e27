"""The end of a foreground run: summary, jobs that did not run, and the exit code."""

from __future__ import annotations

import os

from stoker.cli.output import as_json, notice, report_change
from stoker.cli.run.progress import Screen
from stoker.cli.run.run_sources import LineSource, WordSource
from stoker.cli.verbs.wait import code_of
from stoker.client.views import job as views
from stoker.engine.store import job_queries
from stoker.engine.store.database import Database
from stoker.record import Record
from stoker.states import FINAL, WAITING
from stoker.text.command_line import Parsed
from stoker.text.commands.shell_words import display
from stoker.text.terminal import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.cli.run.run_sweep import SweepSource


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
