"""`stoker run --on NAME`: submit jobs to a backend and wait for them in the foreground."""

from __future__ import annotations

import time

from stoker.cli.job_flags import sweep_base
from stoker.cli.job_lines import check_file, read_batches
from stoker.cli.open_queue import at_end, open_queue
from stoker.cli.output import notice, print_json
from stoker.cli.verbs.follow import follow
from stoker.cli.verbs.wait import code_of
from stoker.client.live.change_feed import ChangeFeed
from stoker.client.live.wait_display import WaitDisplay
from stoker.client.queue import CHUNK, Queue
from stoker.client.submit.job_options import as_flag, flag_values
from stoker.client.submit.job_specs import JobSpecs
from stoker.client.views import job as views
from stoker.engine.store import job_queries
from stoker.errors import UsageError
from stoker.states import ACTIVE, FINAL, WAITING
from stoker.text.command_line import Parsed
from stoker.text.plurals import plural

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.features.sweeps.spec.spec import SweepSpec

_MAX_CODE = 101
_INTERRUPTED = 130
_NOT_STARTED = (*WAITING, "submitted")
# Options for GPUs and records of this host.
_LOCAL_OPTIONS = ("devices", "gpu_file", "jobs", "log_dir", "stream", "resume")


def run_on_backend(parsed: Parsed, path: str | None, sweep: SweepSpec | None) -> int:
    """Run jobs on a backend. The exit code is that of `stoker run`."""
    for key in _LOCAL_OPTIONS:
        if parsed[key]:
            flag = f"--{key.replace('_', '-')}"
            raise UsageError(
                f"`{flag}` is for jobs on this host, and {as_flag('on')} names a backend",
                f"remove {flag}",
            )
    queue = open_queue()
    if sweep is not None:
        from stoker.features.sweeps.control import lifecycle

        base = sweep_base(queue.settings, queue.devices(), sweep, parsed)
        started = lifecycle.start(queue, sweep, base, lifecycle.SAME_FAILS)
        return _wait_for(queue, parsed, queue.select([f"sweep:{started.name}"]))
    specs = JobSpecs(queue.settings, queue.devices(), flag_values(parsed.values))
    if path is None:
        spec = specs.command(parsed.words, is_argv=parsed.dashed)
        job = queue.submission().add([spec], time.time()).first
        queue.ensure_daemon()
        return _follow_one(queue, parsed, job)
    if path != "-":
        check_file(path, specs.line)
    submission = queue.submission()
    ids: list[int] = []
    for batch in read_batches(path, CHUNK):
        ids += submission.add([specs.line(line) for line in batch], time.time()).ids
        queue.ensure_daemon()
    return _wait_for(queue, parsed, ids)


def _follow_one(queue: Queue, parsed: Parsed, job: int) -> int:
    """Print the output of one job and return its exit code; Ctrl-C cancels it."""
    follow(queue, job, parsed, lambda row: views.log_paths(queue.settings, row)[0], lambda *_: 0)
    row = job_queries.job(queue.db, job)
    if row.state in FINAL:
        return code_of(row)
    queue.cancel([job])
    notice(f"cancelling job {job}")
    return _INTERRUPTED


def _wait_for(queue: Queue, parsed: Parsed, ids: list[int]) -> int:
    """Wait for jobs with a progress line. Ctrl-C cancels waiting jobs, twice also running ones."""
    changes = ChangeFeed(queue.settings.state_dir)
    at_end(changes.close)
    is_shown = not (parsed["quiet"] or parsed["json"])
    display = WaitDisplay(queue.settings, lambda: queue.db, ids, wanted=None if is_shown else False)
    at_end(display.close)
    interrupts = 0
    while True:
        try:
            counts = _counts(queue, ids)
            left = sum(counts.get(state, 0) for state in (*WAITING, *ACTIVE))
            if not left:
                break
            display.refresh()
            changes.wait(1.0)
        except KeyboardInterrupt:
            interrupts += 1
            states = _NOT_STARTED if interrupts == 1 else (*WAITING, *ACTIVE)
            stopped = job_queries.in_states(queue.db, ids, states)
            queue.cancel(stopped)
            display.clear()
            more = "; Ctrl-C again cancels running jobs too" if interrupts == 1 else ""
            notice(f"cancelling {plural(len(stopped), 'job')}{more}")
    display.close()
    counts = _counts(queue, ids)
    failed = counts.get("failed", 0) + counts.get("lost", 0)
    if parsed["json"]:
        print_json(counts=counts, jobs=ids)
    elif not parsed["quiet"]:
        notice(_words(counts, len(ids)))
    return _INTERRUPTED if interrupts else min(failed, _MAX_CODE)


def _counts(queue: Queue, ids: list[int]) -> dict[str, int]:
    return job_queries.counts_of(queue.db, ids)


def _words(counts: dict[str, int], total: int) -> str:
    ended = sum(counts.get(state, 0) for state in FINAL)
    parts = [f"{ended} of {plural(total, 'job')} finished"]
    parts += [
        f"{counts[state]} {state}"
        for state in (*ACTIVE, "failed", "lost", "cancelled")
        if counts.get(state)
    ]
    return ", ".join(parts)
