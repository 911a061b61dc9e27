"""`stoker daemon`: start, stop, drain, resume or look at the background loop."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from stoker.cli.open_queue import open_queue
from stoker.cli.output import notice, plural, print_json
from stoker.client import views
from stoker.client.queue import Queue
from stoker.core.formats.command_line import Option, Parsed, Verb
from stoker.core.states import ACTIVE
from stoker.daemon.start import DAEMON_MODULE
from stoker.errors import Error, Unavailable, UsageError
from stoker.settings import load_settings, prepare_state_dir
from stoker.store import job_queries
from stoker.store.database import refuse_newer
from stoker.supervisor import locks
from stoker.supervisor.process_table import STOPPED, state_of
from stoker.supervisor.runner_client import release_runner, starting_daemons

_ACTIONS = ("start", "stop", "restart", "status", "drain", "resume", "run")

VERB = Verb(
    "daemon",
    "daemon start|stop|restart|status|drain|resume|run",
    "The per-user background loop. `submit` starts it by itself.",
    (Option("--cancel", "with stop: end the running jobs too"),),
    (
        ("stoker daemon status", ""),
        ("stoker daemon drain", "let running jobs finish, start no more"),
        ("stoker daemon stop", "running jobs go on; their ends are recorded all the same"),
        ("stoker daemon restart", "after an upgrade of Stoker; running jobs go on"),
        ("stoker daemon run", "in the foreground, for systemd and the curious"),
    ),
    words="actions",
)
_STOP_SECONDS = 10.0


def run(parsed: Parsed) -> int:
    action = parsed.words[0] if parsed.words else "status"
    if action not in _ACTIONS or len(parsed.words) > 1:
        raise UsageError(f"`{' '.join(parsed.words)}`: what should the daemon do?",
                         f"one of: {', '.join(_ACTIONS)}")  # fmt: skip
    if action == "restart":
        return _restart(parsed)
    if action == "stop" and not parsed["cancel"]:
        return _stop(parsed)
    queue = open_queue()
    if action == "start":
        return _start(queue, parsed)
    if action == "stop":
        return _stop_all(queue, parsed)
    if action == "run":
        return _run(queue)
    if action in ("drain", "resume"):
        queue.drain(action == "drain")
        counts = job_queries.counts(queue.db)
        running = sum(counts.get(state, 0) for state in ACTIVE)
        if action == "resume":
            queue.wake()
        if parsed["json"]:
            print_json(draining=action == "drain", running=running)
        elif action == "drain":
            notice(f"nothing new starts; {plural(running, 'job')} still running")
        else:
            notice("jobs start again")
        return 0
    return _status(queue, parsed)


def _start(queue: Queue, parsed: Parsed) -> int:
    started = queue.wake()
    pid = locks.holder(queue.settings.state_dir, locks.DAEMON_LOCK)
    if parsed["json"]:
        print_json(pid=pid, started=started)
    else:
        print(f"daemon {'started' if started else 'is already running'} (pid {pid})")
    return 0


def _stop_all(queue: Queue, parsed: Parsed) -> int:
    was_draining = bool(job_queries.meta(queue.db, "draining"))
    queue.drain(True)  # or waiting jobs would take the places of those that end
    try:
        active = [row.id for row in job_queries.page(queue.db, ACTIVE, 10**6)]
        if active:
            queue.cancel(active)
            _wait_until(lambda: not job_queries.page(queue.db, ACTIVE, 1), 60.0)
        return _stop(parsed)
    finally:
        queue.drain(was_draining)


def _stop(parsed: Parsed) -> int:
    folder = _state_dir()
    pid = _end(folder)
    runner = locks.holder(folder, locks.RUNNER_LOCK)
    running = _running()
    go = "goes" if running == 1 else "go"
    rest = f"{plural(running, 'job')} {go} on without it" if running else ""
    if pid is not None:
        return _stopped(parsed, f"daemon stopped{'; ' + rest if rest else ''}", pid, running)
    text = "no daemon is running"
    if runner is not None:
        text += f", and the runner (pid {runner}) will not start one" + (rest and f"; {rest}")
    return _stopped(parsed, text, None, running)


def _restart(parsed: Parsed) -> int:
    """Stop the daemon that runs, of whatever release, and start one of this release."""
    folder = _state_dir()
    refuse_newer(folder)  # or nobody could serve the queue after the newer daemon is gone
    before = _end(folder)
    queue = open_queue()
    queue.wake()
    pid = locks.holder(folder, locks.DAEMON_LOCK)
    if parsed["json"]:
        print_json(pid=pid, stopped_pid=before)
    else:
        print(f"daemon {'started' if before is None else 'restarted'} (pid {pid})")
    return 0


def _state_dir() -> str:
    """Without a look at the queue, whose schema may be the one of the daemon that has to go."""
    settings = load_settings()
    prepare_state_dir(settings)
    return settings.state_dir


def _end(folder: str) -> int | None:
    """Stop the daemon, and keep the runner from starting another. Returns the daemon's PID."""
    ended = None
    give_up = time.monotonic() + 2 * _STOP_SECONDS
    while time.monotonic() < give_up:
        pid = locks.holder(folder, locks.DAEMON_LOCK)
        if pid is not None and pid > 0:
            _terminate(folder, pid)
            ended = pid
        runner = release_runner(folder)
        if runner is None:
            return ended
        starting = starting_daemons(runner, DAEMON_MODULE)
        for daemon in starting:  # the runner had begun to start one
            with suppress(ProcessLookupError):
                os.kill(daemon, signal.SIGTERM)
        if not starting and locks.holder(folder, locks.DAEMON_LOCK) is None:
            return ended
        time.sleep(0.01)
    raise Unavailable("a daemon starts again and again while it is stopped",
                      "ps x | grep stoker.daemon   (who starts it?)")  # fmt: skip


def _terminate(folder: str, pid: int) -> None:
    # The lock proves that this PID is the daemon's, at this moment.
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    if not _wait_until(lambda: locks.holder(folder, locks.DAEMON_LOCK) != pid, _STOP_SECONDS):
        if state_of(pid) == STOPPED:
            raise Unavailable(f"the daemon (pid {pid}) is suspended and cannot stop",
                              f"kill -CONT {pid}")  # fmt: skip
        raise Unavailable(f"the daemon (pid {pid}) does not stop", f"kill -9 {pid} loses nothing")


def _running() -> int:
    """How many jobs run; 0 when the queue cannot be read without changing it."""
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
    give_up = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.01)
    return True


def _run(queue: Queue) -> int:
    from stoker.daemon.main import run_daemon

    settings = queue.settings
    queue.db.close()
    run_daemon(settings)
    return 0


def _status(queue: Queue, parsed: Parsed) -> int:
    facts = views.daemon_facts(queue.db, queue.settings)
    if parsed["json"]:
        print_json(**facts)
        return 0 if facts["running"] else 1
    if not facts["running"]:
        print("no daemon is running; the next submit starts one")
        return 1
    stopped = facts["stopped"]
    print(f"daemon {'is stopped' if stopped else 'runs'} (pid {facts['pid']},"
          f" runner {facts['runner_pid'] or '-'})")  # fmt: skip
    if stopped:
        print(f"hint: `kill -CONT {facts['pid']}` lets it go on")
    if facts["runner_stopped"]:
        print("the runner is suspended: no job starts, and no end is noticed\n"
              f"hint: `kill -CONT {facts['runner_pid']}` lets it go on")  # fmt: skip
    print(f"state   {facts['state_dir']}\nlog     {facts['log']}")
    if facts["draining"]:
        print("drained: `stoker daemon resume` lets jobs start again")
    return 0
