"""`stoker daemon`: start, stop, restart, drain, resume or inspect the daemon."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from stoker.cli.open_queue import open_queue
from stoker.cli.output import as_json, notice, plural, print_json, report_change
from stoker.client.queue import Queue
from stoker.client.views import job as views
from stoker.engine.daemon.start import DAEMON_MODULE
from stoker.engine.store import job_queries, meta
from stoker.engine.store.database import refuse_newer
from stoker.engine.supervisor import locks
from stoker.engine.supervisor.process_table import STOPPED, process_state
from stoker.engine.supervisor.runner_client import release_runner, starting_daemons
from stoker.errors import Error, Unavailable, UsageError
from stoker.features import CALLS, call, load
from stoker.settings import load_settings, prepare_state_dir
from stoker.states import ACTIVE
from stoker.text.command_line import Option, Parsed, Verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_ACTIONS = ("start", "stop", "restart", "status", "drain", "resume", "run", "enable", "disable")

VERB = Verb(
    "daemon",
    "daemon start|stop|restart|status|drain|resume|run|enable|disable",
    "Control the background daemon of this user (default: status). `submit` starts it when needed.",
    (
        Option("--cancel", "with stop: also cancel running jobs"),
        Option("--cron", "with enable: use an @reboot line in your crontab, not systemd"),
    ),
    (
        ("stoker daemon status", ""),
        ("stoker daemon drain", "let running jobs finish, and start no more jobs"),
        ("stoker daemon stop", "running jobs continue, and their results are recorded"),
        ("stoker daemon restart", "after an upgrade of Stoker; running jobs continue"),
        ("stoker daemon enable", "start it after each boot of this host"),
        ("stoker daemon run", "run the daemon in the foreground, e.g. under systemd"),
    ),
    words="actions",
)
_STOP_SECONDS = 10.0


def run(parsed: Parsed) -> int:
    action = parsed.words[0] if parsed.words else "status"
    if action not in _ACTIONS or len(parsed.words) > 1:
        raise UsageError(
            f"`{' '.join(parsed.words)}` is not an action of `stoker daemon`",
            f"actions: {', '.join(_ACTIONS)}",
        )
    if action == "restart":
        return _restart(parsed)
    if action == "stop" and not parsed["cancel"]:
        return _stop(parsed)
    if parsed["cron"] and action != "enable":
        raise UsageError("`--cron` is an option of `stoker daemon enable`")
    if action in ("enable", "disable"):
        return _set_boot_start(parsed, action == "enable")
    queue = open_queue()
    if action == "start":
        return _start(queue, parsed)
    if action == "stop":
        return _stop_all(queue, parsed)
    if action == "run":
        return _run(queue)
    if action in ("drain", "resume"):
        queue.set_draining(action == "drain")
        counts = job_queries.counts(queue.db)
        running = sum(counts.get(state, 0) for state in ACTIVE)
        if action == "resume":
            queue.ensure_daemon()
        if parsed["json"]:
            print_json(draining=action == "drain", running=running)
        elif action == "drain":
            notice(f"no more jobs start; {plural(running, 'job')} still running")
        else:
            notice("resumed: jobs start again")
        return 0
    return _status(queue, parsed)


def _start(queue: Queue, parsed: Parsed) -> int:
    started = queue.ensure_daemon()
    pid = locks.holder(queue.settings.state_dir, locks.DAEMON_LOCK)
    if parsed["json"]:
        print_json(pid=pid, started=started)
    else:
        print(f"daemon {'started' if started else 'is already running'} (pid {pid})")
    return 0


def _stop_all(queue: Queue, parsed: Parsed) -> int:
    was_draining = meta.is_draining(queue.db)
    queue.set_draining(True)  # otherwise waiting jobs would start on the freed GPUs
    try:
        active = [row.id for row in job_queries.jobs_in_states(queue.db, ACTIVE, 10**6)]
        if active:
            queue.cancel(active)
            _wait_until(lambda: not job_queries.jobs_in_states(queue.db, ACTIVE, 1), 60.0)
        return _stop(parsed)
    finally:
        queue.set_draining(was_draining)


def _stop(parsed: Parsed) -> int:
    folder = _state_dir()
    pid = _end(folder)
    runner = locks.holder(folder, locks.RUNNER_LOCK)
    running = _running()
    verb = "continues" if running == 1 else "continue"
    rest = f"{plural(running, 'job')} {verb} to run" if running else ""
    if pid is not None:
        return _stopped(parsed, f"daemon stopped{'; ' + rest if rest else ''}", pid, running)
    text = "no daemon is running"
    if runner is not None:
        text += f", and the runner (pid {runner}) will not start one" + (rest and f"; {rest}")
    return _stopped(parsed, text, None, running)


def _restart(parsed: Parsed) -> int:
    """Stop the running daemon, of any release, and start one of this release."""
    folder = _state_dir()
    refuse_newer(folder)  # this release could not serve the queue of a newer daemon
    before = _end(folder)
    queue = open_queue()
    queue.ensure_daemon()
    pid = locks.holder(folder, locks.DAEMON_LOCK)
    if parsed["json"]:
        print_json(pid=pid, stopped_pid=before)
    else:
        print(f"daemon {'started' if before is None else 'restarted'} (pid {pid})")
    return 0


def _state_dir() -> str:
    """The state folder. Does not open the database, whose schema may be of another release."""
    settings = load_settings()
    prepare_state_dir(settings)
    return settings.state_dir


def _end(folder: str) -> int | None:
    """Stop the daemon, and keep the runner from starting another one.

    Returns the PID of the daemon, or None if there was none. Raises Unavailable.
    """
    ended = None
    deadline = time.monotonic() + 2 * _STOP_SECONDS
    while time.monotonic() < deadline:
        pid = locks.holder(folder, locks.DAEMON_LOCK)
        if pid is not None and pid > 0:
            _terminate(folder, pid)
            ended = pid
        runner = release_runner(folder)
        if runner is None:
            return ended
        starting = starting_daemons(runner, DAEMON_MODULE)
        for daemon in starting:  # the runner was already starting one
            with suppress(ProcessLookupError):
                os.kill(daemon, signal.SIGTERM)
        if not starting and locks.holder(folder, locks.DAEMON_LOCK) is None:
            return ended
        time.sleep(0.01)
    raise Unavailable(
        "something keeps starting a new daemon",
        "find out what starts it: ps x | grep stoker.engine.daemon",
    )


def _terminate(folder: str, pid: int) -> None:
    # The daemon holds the lock, so this PID has not been reused.
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    if not _wait_until(lambda: locks.holder(folder, locks.DAEMON_LOCK) != pid, _STOP_SECONDS):
        if process_state(pid) == STOPPED:
            raise Unavailable(
                f"the daemon (pid {pid}) is suspended and cannot stop", f"kill -CONT {pid}"
            )
        raise Unavailable(
            f"the daemon (pid {pid}) does not stop", f"kill -9 {pid} (no data is lost)"
        )


def _running() -> int:
    """The number of running jobs; 0 if the queue cannot be read."""
    try:
        counts = job_queries.counts(open_queue().db)
    except Error:
        return 0
    return sum(counts.get(state, 0) for state in ACTIVE)


def _stopped(parsed: Parsed, text: str, pid: int | None, running: int) -> int:
    if parsed["json"]:
        print_json(pid=pid, running=running)
    else:
        print(text)
    return 0


def _wait_until(condition, seconds: float) -> bool:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def _run(queue: Queue) -> int:
    from stoker.engine.daemon.main import run_daemon

    settings = queue.settings
    queue.db.close()
    run_daemon(settings)
    return 0


def _set_boot_start(parsed: Parsed, is_enabled: bool) -> int:
    """Start the daemon after each boot, or not any more."""
    settings = load_settings()
    prepare_state_dir(settings)
    found, text = load(CALLS["set_boot_start"])(settings, is_enabled, use_cron=bool(parsed["cron"]))
    report_change(
        as_json(after_boot=found.how, unit=found.name or None) if parsed["json"] else text
    )
    return 0


def _status(queue: Queue, parsed: Parsed) -> int:
    facts = views.daemon_facts(queue.db, queue.settings)
    after_boot = call("known_boot_start", queue.settings)
    if parsed["json"]:
        if after_boot is not None:
            facts |= {"after_boot": after_boot.how, "linger": after_boot.lingers}
        print_json(**facts)
        return 0 if facts["running"] else 1
    if not facts["running"]:
        print("no daemon is running; the next `stoker submit` starts one")
        _print_boot(after_boot)
        return 1
    stopped = facts["stopped"]
    print(
        f"daemon is {'suspended' if stopped else 'running'} (pid {facts['pid']},"
        f" runner {facts['runner_pid'] or '-'})"
    )
    if stopped:
        print(f"hint: continue it with `kill -CONT {facts['pid']}`")
    if facts["runner_stopped"]:
        print(
            "the runner is suspended: no job starts, and the end of no job is recorded\n"
            f"hint: continue it with `kill -CONT {facts['runner_pid']}`"
        )
    print(f"state   {facts['state_dir']}\nlog     {facts['log']}")
    print(f"python  {facts['python'] or 'not known: the daemon is of another release'}")
    _print_boot(after_boot)
    if facts["draining"]:
        print("drained: no job starts before `stoker daemon resume`")
    return 0


def _print_boot(after_boot: Any) -> None:
    """`after_boot` is None if the feature was taken out."""
    if after_boot is not None:
        print(f"boot    {after_boot.words()}")
