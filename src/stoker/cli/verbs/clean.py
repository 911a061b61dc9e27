"""`stoker clean`: remove finished jobs or foreground runs with their logs."""

from __future__ import annotations

import time

from stoker.cli.confirmation import (
    DRY_RUN,
    YES,
    is_asked,
    is_confirmed,
    print_kept,
    print_marked,
    print_plan,
)
from stoker.cli.open_queue import open_queue
from stoker.cli.output import ProgressLine, as_json, notice, plural, report_change
from stoker.client.queue import Queue
from stoker.client.removal import removal_plan
from stoker.engine.store import job_queries
from stoker.errors import UsageError
from stoker.features.notes import store as notes
from stoker.states import FINAL
from stoker.text.command_line import Option, Parsed, Verb
from stoker.text.durations import parse_duration
from stoker.text.sizes import format_size

VERB = Verb(
        "clean",
        "clean [OPTIONS]",
        "Remove all finished jobs with their logs and metrics, and free their disk space. Jobs with"
        " a star or a note, and those of such sweeps, are kept.",
        (
            Option("--older", "only jobs that finished at least this long ago (without unit: days)",
                   "TIME", lambda text: parse_duration(text, "d")),
            Option("-s --state", "only jobs in this state: done, failed, cancelled or lost",
                   "STATE", completes="done|failed|cancelled|lost"),
            Option("--runs", "remove foreground runs instead: their logs, and the records that"
                   " --resume needs"),
            YES,
            DRY_RUN,
        ),
        (("stoker clean --older 7d", ""), ("stoker clean --state done --yes", ""),
         ("stoker clean --runs --older 30d --dry-run", "")),
    )  # fmt: skip


def run(parsed: Parsed) -> int:
    state = parsed["state"]
    if state is not None and state not in FINAL:
        raise UsageError(f"`{state}` is not a final state", f"final states: {', '.join(FINAL)}")
    if parsed["runs"] and state is not None:
        raise UsageError("`--runs` and `--state` exclude each other", "a run is removed as a whole")
    before = None if parsed["older"] is None else time.time() - parsed["older"]
    queue = open_queue()
    if parsed["runs"]:
        return _clean_runs(queue, parsed, before)
    ended = job_queries.ended_jobs(queue.db, (state,) if state else FINAL, before)
    kept = notes.marked_jobs(queue.db, ended)
    ids = [job for job in ended if job not in kept]
    print_marked(len(kept))
    if parsed["dry_run"] or is_asked(parsed):
        plan = removal_plan(queue.db, ids)
        if parsed["dry_run"]:
            return print_plan(
                parsed,
                f"{plan.words()}, none removed",
                jobs=ids,
                removed=[],
                kept=sorted(kept),
                bytes=plan.file_bytes,
            )
        if ids and not is_confirmed(parsed, f"remove {plan.words()}", "nothing was removed"):
            return 1
    return _clean_jobs(queue, parsed, ids)


def _clean_jobs(queue: Queue, parsed: Parsed, ids: list[int]) -> int:
    from stoker.engine.store import vacuum

    before = vacuum.size(queue.settings.state_dir)
    progress = ProgressLine()
    removal = queue.removal(lambda count: progress.write(f"removed {count} of {len(ids)} jobs"))
    try:
        removal.remove(ids)
        problem = _reclaim(queue, progress) if ids else None
    except KeyboardInterrupt:
        progress.clear()
        notice(f"interrupted: {plural(len(removal.jobs), 'job')} removed, the rest kept")
        raise
    progress.clear()
    print_kept(removal.kept)
    freed = removal.log_bytes + max(0, before - vacuum.size(queue.settings.state_dir))
    amount = f", {format_size(freed)} freed" if freed else ""
    text = f"{plural(len(removal.jobs), 'job')} removed{amount}"
    if not parsed["json"]:
        report_change(text)
        if problem is not None:
            notice(f"the database file was not made smaller: {problem}")
    else:
        report_change(as_json(removed=removal.jobs, freed_bytes=freed), text)
    return 0


def _reclaim(queue: Queue, progress: ProgressLine) -> str | None:
    """Shrink the database file. Returns None, or the reason why that is not possible now."""
    import sqlite3

    from stoker.engine.store import vacuum
    from stoker.engine.store.database import translate

    progress.write("shrinking the database")
    try:
        return vacuum.reclaim(queue.db)
    except sqlite3.Error as error:  # the jobs are removed nevertheless
        return translate(error, queue.settings.state_dir).message


def _clean_runs(queue: Queue, parsed: Parsed, before: float | None) -> int:
    runs = queue.finished_runs(before)
    what = plural(len(runs), "foreground run")
    if parsed["dry_run"]:
        return print_plan(parsed, f"{what}, none removed", runs=0, folders=runs)
    question = f"remove {what} with {'its' if len(runs) == 1 else 'their'} logs"
    if runs and not is_confirmed(parsed, question, "nothing was removed"):
        return 1
    removed = queue.remove_runs(runs)
    text = f"{plural(removed, 'foreground run')} removed"
    report_change(as_json(runs=removed) if parsed["json"] else text)
    return 0
