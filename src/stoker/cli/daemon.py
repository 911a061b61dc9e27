"""`stoker daemon`: start, stop, drain, resume or look at the background loop."""

from __future__ import annotations

import os
import signal
import time

from stoker import board
from stoker.api import Queue
from stoker.cli.options import Option, Parsed, Verb
from stoker.cli.output import plural, print_json, tell
from stoker.core.states import ACTIVE
from stoker.errors import Unavailable, UsageError
from stoker.store import find
from stoker.supervisor import locks

_ACTIONS = ("start", "stop", "status", "drain", "resume", "run")

VERBS = {
    "daemon": Verb(
        "daemon",
        "daemon start|stop|status|drain|resume|run",
        "The per-user background loop. `submit` starts it by itself.",
        (Option("--cancel", "with stop: end the running jobs too"),),
        (
            ("stoker daemon status", ""),
            ("stoker daemon drain", "let running jobs finish, start no more"),
            ("stoker daemon stop", "running jobs go on; their ends are recorded all the same"),
            ("stoker daemon run", "in the foreground, for systemd and the curious"),
        ),
        words="actions",
    )
}
_STOP_SECONDS = 10.0


def run(name: str, parsed: Parsed) -> int:
    action = parsed.words[0] if parsed.words else "status"
    if action not in _ACTIONS or len(parsed.words) > 1:
        raise UsageError(f"`{' '.join(parsed.words)}`: what should the daemon do?",
                         f"one of: {', '.join(_ACTIONS)}")  # fmt: skip
    queue = Queue()
    if action == "start":
        return _start(queue, parsed)
    if action == "stop":
        return _stop(queue, parsed)
    if action == "run":
        return _run(queue)
    if action in ("drain", "resume"):
        queue.drain(action == "drain")
        counts = find.counts(queue.db)
        running = sum(counts.get(state, 0) for state in ACTIVE)
        if action == "resume":
            queue.wake()
        if parsed["json"]:
            print_json(draining=action == "drain", running=running)
        elif action == "drain":
            tell(f"nothing new starts; {plural(running, 'job')} still running")
        else:
            tell("jobs start again")
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


def _stop(queue: Queue, parsed: Parsed) -> int:
    if not parsed["cancel"]:
        return _end(queue, parsed)
    was_draining = bool(find.meta(queue.db, "draining"))
    queue.drain(True)  # or waiting jobs would take the places of those that end
    try:
        active = [row.id for row in find.page(queue.db, ACTIVE, 10**6)]
        if active:
            queue.cancel(active)
            _wait_until(lambda: not find.page(queue.db, ACTIVE, 1), 60.0)
        return _end(queue, parsed)
    finally:
        queue.drain(was_draining)


def _end(queue: Queue, parsed: Parsed) -> int:
    pid = locks.holder(queue.settings.state_dir, locks.DAEMON_LOCK)
    if pid is None:
        return _stopped(parsed, "no daemon is running", None, 0)
    # The lock proves that this PID is the daemon's, at this moment.
    os.kill(pid, signal.SIGTERM)
    folder = queue.settings.state_dir
    if not _wait_until(lambda: locks.holder(folder, locks.DAEMON_LOCK) != pid, _STOP_SECONDS):
        raise Unavailable(f"the daemon (pid {pid}) does not stop", f"kill -9 {pid} loses nothing")
    counts = find.counts(queue.db)
    running = sum(counts.get(state, 0) for state in ACTIVE)
    go = "goes" if running == 1 else "go"
    rest = f"; {plural(running, 'job')} {go} on without it" if running else ""
    return _stopped(parsed, f"daemon stopped{rest}", pid, running)


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
    facts = board.daemon_facts(queue.db, queue.settings)
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
    print(f"state   {facts['state_dir']}\nlog     {facts['log']}")
    if facts["draining"]:
        print("drained: `stoker daemon resume` lets jobs start again")
    return 0
