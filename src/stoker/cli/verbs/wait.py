"""`stoker wait`: block until jobs finish, and print how they ended."""

from __future__ import annotations

import sys
import time

from stoker.cli.open_queue import at_end, open_queue
from stoker.cli.output import notice, plural, print_json
from stoker.cli.start_notice import STARTED
from stoker.client.live.change_feed import ChangeFeed
from stoker.client.queue import Queue
from stoker.client.views import job as views
from stoker.engine.store import history, job_queries
from stoker.engine.store.job_queries import JobRow
from stoker.engine.store.waited_jobs import select_waited
from stoker.errors import TimedOut, UsageError
from stoker.states import ACTIVE, FINAL, QUEUED
from stoker.text.command_line import Option, Parsed, Verb
from stoker.text.durations import format_duration, parse_duration
from stoker.text.plurals import plural_word
from stoker.text.selectors import id_ranges

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.client.live.wait_display import WaitDisplay
    from stoker.engine.store.waited_jobs import Waited
    from stoker.features.notify.foreground import WaitNotification


def _place(text: str) -> str:
    from stoker.features.notify.rules import is_place_name

    if text and not is_place_name(text):
        raise UsageError(f"`{text}` is not the name of a place", "see `stoker notify ls`")
    return text


VERB = Verb(
    "wait",
    "wait [OPTIONS] [JOB...]",
    "Wait until jobs finish (default: all unfinished ones). For one job, the exit code is that"
    " of the job, or 128+N after signal N; for several, it is 0 if all succeeded, else 1.",
    (
        Option("--all", "wait for all unfinished jobs (the default)"),
        Option("--any", "return as soon as one of the jobs finishes"),
        Option(
            "--timeout",
            "stop waiting after this long, with exit code 124 (without unit: seconds)",
            "TIME",
            lambda text: parse_duration(text, "s"),
        ),
        Option("--ignore-failures", "exit with 0 even if jobs failed"),
        Option("-q --quiet", "print nothing"),
        Option(
            "--notify",
            "send a notification when the wait ends: to the desktop, else to"
            " this terminal, or to a place from `stoker notify ls`",
            "WHERE",
            _place,
            optional=True,
        ),
        Option(
            "--progress", "show progress even if stderr is not a terminal: a line for each change"
        ),
        Option("--no-progress", "show no progress on a terminal"),
    ),
    (
        ("stoker wait 7 && echo trained", ""),
        ("stoker wait --timeout 2h", ""),
        ("stoker wait --notify 7", ""),
    ),
    """A name or a tag means its unfinished jobs or, if all have finished, the newest one with
all that were submitted together with it; without JOB, the same holds for the whole queue. A job
that was rerun is replaced by its rerun. SWEEP or sweep:SWEEP means all trials, also those that its
search adds later. Held jobs are waited for only if JOB selects them.

On a terminal, a line shows how many jobs have finished and when the last one likely will
(ETA). The time comes from the progress that jobs report, from earlier jobs with the same command,
and from the forecast of starts.""",
    words="jobs",
)

# Held jobs never finish by themselves; they are waited for only if selected.
_UNSUCCESSFUL = ("failed", "cancelled", "lost")
UNFINISHED = ["queued", "active"]
_RECENT_SECONDS = 3600.0
_CAN_CHANGE = (QUEUED, *ACTIVE)


def run(parsed: Parsed) -> int:
    if parsed["notify"] is None:
        return _wait(parsed)
    from stoker.features.notify.foreground import WaitNotification

    notification = WaitNotification(parsed["notify"])
    try:
        return _wait(parsed, notification)
    except TimedOut as error:
        notification.send(error.message)
        raise


def _wait(parsed: Parsed, notification: WaitNotification | None = None) -> int:
    queue = open_queue()
    changes = ChangeFeed(queue.settings.state_dir)
    at_end(changes.close)
    deadline = None if parsed["timeout"] is None else time.monotonic() + parsed["timeout"]
    is_all = bool(parsed["all"]) or not (parsed.words or parsed["any"])
    # `--any` without words does not return because of a job that has already finished.
    words = [] if is_all else parsed.words or UNFINISHED
    waited = select_waited(queue.db, parsed.values.get("selected", words))
    left = waited.ids(queue.db)
    if job_queries.has_any(queue.db, _CAN_CHANGE) and queue.ensure_daemon() and not parsed["quiet"]:
        notice(STARTED)
    if not parsed["quiet"]:
        for job in job_queries.in_states(queue.db, left, ("held",)):
            notice(f"job {job} is held; to let it start: stoker release {job}")
    display = _display(queue, parsed, waited)
    while True:
        # Only check the first unfinished job, so that thousands of jobs cost no more than one.
        left = _from_first_unfinished(queue, left)
        if (parsed["any"] or not left) and _is_over(queue, waited, is_any=bool(parsed["any"])):
            break
        rest = None if deadline is None else deadline - time.monotonic()
        if rest is not None and rest <= 0:
            raise _timed_out(queue, waited, parsed["timeout"])
        if display is not None:
            display.refresh()
        changes.wait(rest)
    if display is not None:
        display.close()
    ids = waited.ids(queue.db)
    if is_all:
        counts = job_queries.counts_of(queue.db, ids)
        if notification is not None:
            notification.send(_all_words(counts))
        if not parsed["quiet"] and not parsed["json"]:
            _print_uncounted(queue, ids)
        return 0 if parsed["ignore_failures"] else _all_code(counts, parsed)
    rows = job_queries.jobs(queue.db, ids)
    ended = [row for row in rows if row.state in FINAL]
    if notification is not None:
        from stoker.features.notify.foreground import notices_of

        notification.send("no job is left", notices_of(queue, [row.id for row in ended]))
    if parsed["json"]:
        print_json(jobs=[views.job_json(queue.db, queue.settings, row) for row in ended])
    elif not parsed["quiet"]:
        for row in ended:
            words_of_end = views.result_words(row, queue.db)
            notice(f"job {row.id} {row.state}" + (f": {words_of_end}" if words_of_end else ""))
    if parsed["ignore_failures"]:
        return 0
    if len(ids) == 1:
        return code_of(rows[0])
    return int(any(row.state != "done" for row in ended))


def _is_over(queue: Queue, waited: Waited, *, is_any: bool) -> bool:
    will_grow = waited.will_grow(queue.db)  # before `ids`: no trial is added after it is false
    ids = waited.ids(queue.db)
    left = job_queries.unfinished(queue.db, ids, len(ids) if is_any else 1)
    if is_any and ids:
        return len(left) < len(ids)
    return not left and not will_grow


def _timed_out(queue: Queue, waited: Waited, timeout: float) -> TimedOut:
    ids = waited.ids(queue.db)
    count = len(job_queries.unfinished(queue.db, ids, len(ids)))
    after = format_duration(timeout)
    if not count:
        return TimedOut(f"the sweep {waited.sweeps[0]} has not finished after {after}")
    have = "has" if count == 1 else "have"
    return TimedOut(f"{plural(count, 'job')} {have} not finished after {after}")


def _display(queue: Queue, parsed: Parsed, waited: Waited) -> WaitDisplay | None:
    """The progress line; None if it is not wanted, which needs no import."""
    if parsed["quiet"] or parsed["no_progress"]:
        if parsed["progress"]:
            other = "quiet" if parsed["quiet"] else "no-progress"
            raise UsageError(f"`--progress` and `--{other}` exclude each other")
        return None
    if not (parsed["progress"] or sys.stderr.isatty()):
        return None
    from stoker.client.live.wait_display import WaitDisplay

    wanted = True if parsed["progress"] else None
    planned = None
    if waited.will_grow(queue.db):
        from stoker.features.sweeps.control.lifecycle import load

        specs = [load(queue.db, name)[1] for name in waited.sweeps]
        planned = len(waited.jobs) + sum(spec.total_trials or 0 for spec in specs)
    display = WaitDisplay(
        queue.settings, lambda: queue.db, waited.ids, wanted=wanted, planned=planned
    )
    at_end(display.close)  # also after Ctrl-C and at the timeout
    return display


def _from_first_unfinished(queue: Queue, ids: list[int]) -> list[int]:
    first = job_queries.unfinished(queue.db, ids, 1)
    return ids[ids.index(first[0]) :] if first else []


def _print_uncounted(queue: Queue, ids: list[int]) -> None:
    """Name jobs that failed shortly before: a script may have submitted them for this wait."""
    since = time.time() - _RECENT_SECONDS
    failed = [
        row.id
        for row in job_queries.jobs(queue.db, history.recently_ended(queue.db, 10))
        if row.state in ("failed", "lost") and (row.ended_at or 0.0) > since
    ]
    earlier = sorted(set(failed) - set(ids))
    if earlier:
        noun = plural_word(len(earlier), "job")
        are = "is" if len(earlier) == 1 else "are"
        notice(f"note: {noun} {', '.join(id_ranges(earlier))} failed before and {are} not counted")


def _all_code(counts: dict[str, int], parsed: Parsed) -> int:
    if parsed["json"]:
        print_json(counts=counts)
    elif not parsed["quiet"]:
        notice(_all_words(counts))
    return int(any(counts.get(state) for state in _UNSUCCESSFUL))


def _all_words(counts: dict[str, int]) -> str:
    bad = [f"{counts[state]} {state}" for state in _UNSUCCESSFUL if counts.get(state)]
    return "all jobs finished" + (f": {', '.join(bad)}" if bad else "")


def code_of(row: JobRow) -> int:
    """The exit code of a shell that ran the job: 128+N after signal N."""
    if row.state == "done":
        return 0
    number = views.signal_number(row)
    if number:
        return 128 + number
    return views.exit_code(row) or 1
