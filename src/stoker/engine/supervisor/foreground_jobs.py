"""Jobs as children of this process, for `stoker run`. They end when this process ends.

If this process is killed, its cleanup process kills all processes with a tag of this run. It is a
shell that waits for our end of a pipe to close; starting Python would slow down every run.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress

from stoker.engine.model import Context, Outcome
from stoker.engine.supervisor import process_tags
from stoker.engine.supervisor.children import Children
from stoker.engine.supervisor.empty_logs import EmptyLogs
from stoker.engine.supervisor.messages import AttemptStarted, Order, RunnerEvent
from stoker.engine.supervisor.spawn import (
    MAX_CONTEXTS,
    Environment,
    encode_environment,
    set_deadline,
)
from stoker.engine.supervisor.start_batching import StartBatch
from stoker.engine.supervisor.subreaper import become_subreaper

# A line means that nothing is left to kill, the end of the pipe that this process has died.
_CLEANUP_SCRIPT = "trap '' HUP INT TERM; read -r _ && exit; exec \"$@\""


class ForegroundJobs:
    """The same interface as RunnerClient, without a runner process."""

    has_backlog = False

    def __init__(self, tag_base: int, log_limit: int, empty_logs: EmptyLogs | None = None) -> None:
        become_subreaper()
        # If this run is itself part of a job, its jobs belong to that job too.
        outer_tags = os.environb.get(process_tags.ENVIRONMENT_VARIABLE, b"")
        self._children = Children(tag_base, log_limit, outer_tags=outer_tags, empty_logs=empty_logs)
        self._contexts: dict[int, Environment] = {}
        self._events: list[RunnerEvent] = []
        self._starts = StartBatch()
        self._poll: select.epoll | None = None  # of `_wake` and the fork servers
        # A self-pipe: signals wake up epoll.
        self._wake, signal_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(signal_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        cleanup_pid, self._cleanup_pipe = _start_cleanup(tag_base)
        self._children.ignore(cleanup_pid)

    def ignore(self, pids: Iterable[int]) -> None:
        """Declare that these children of this process are not jobs."""
        for pid in pids:
            self._children.ignore(pid)

    def pid_of(self, attempt: int) -> int | None:
        return self._children.pid_of(attempt)

    def fileno(self) -> int:
        return self._wake if self._poll is None else self._poll.fileno()

    def launch(self, order: Order, context: Context, lease: list[int]) -> None:
        base = self._contexts.get(order.context)
        if base is None:
            if len(self._contexts) >= MAX_CONTEXTS:
                self._contexts.clear()
            base = self._contexts[order.context] = encode_environment(context.env)
        env = base | encode_environment(order.env.items())
        set_deadline(env, order.time_limit)
        note = None
        if order.settings.warm is not None:
            note = self._children.starts.start_warm(order, context, env, lease)
            if note is None:
                self._watch_servers()
                return
        event = self._children.starts.start(order, context, env, lease, note)
        if isinstance(event, AttemptStarted):
            self._starts.add(event)
        elif event is not None:
            self._events.append(event)

    def _watch_servers(self) -> None:
        """Let `fileno` be ready for the fork servers too."""
        warm = self._children.starts.warm
        if self._poll is None and warm is not None:
            self._poll = select.epoll()
            self._poll.register(self._wake, select.EPOLLIN)
            self._poll.register(warm.fileno(), select.EPOLLIN)

    def stop(self, attempt: int, reason: str, grace: float | None) -> None:
        self._children.stop(attempt, reason, grace)

    def pause(self, attempt: int, seconds: float) -> None:
        self._children.pause(attempt, seconds)

    def resume(self, attempt: int) -> None:
        self._children.resume(attempt)

    def events(self) -> tuple[list[RunnerEvent], bool]:
        try:
            os.read(self._wake, 4096)
        except BlockingIOError:
            pass
        now = time.monotonic()
        deadline = self._children.next_deadline()
        due = deadline is not None and deadline <= now
        outcomes: list[Outcome] = self._children.enforce_limits() if due else self._children.reap()
        for event in self._children.starts.late_events():
            if isinstance(event, AttemptStarted):
                self._children.starts.confirm(event.attempt)
                self._starts.add(event)
            else:
                self._events.append(event)
        starts = [*self._starts.take(outcomes), *self._starts.due(now)]
        events, self._events = [*starts, *self._events, *self._children.stuck, *outcomes], []
        self._children.stuck.clear()
        return events, True

    @property
    def has_events(self) -> bool:
        return bool(self._events)

    def next_deadline(self) -> float | None:
        times = (self._children.next_deadline(), self._starts.due_at)
        return min((at for at in times if at is not None), default=None)

    def dismiss_cleanup(self) -> None:
        """End the cleanup process: no process is left that it would have to kill."""
        with suppress(BrokenPipeError):  # it was killed
            os.write(self._cleanup_pipe, b"\n")

    def close(self) -> None:
        """Kill all jobs that are left."""
        for started in self._children.live_attempts():
            self._children.stop(started.attempt, "user", 0.0)
        self._children.enforce_limits()
        self._children.close()


def _start_cleanup(tag_base: int) -> tuple[int, int]:
    """The PID of the cleanup process and our end of its pipe, which stays open until we exit."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    program = (
        sys.executable,
        "-P",
        "-m",
        "stoker.engine.supervisor.foreground_cleanup",
        str(tag_base),
    )
    pid = os.posix_spawn(
        "/bin/sh",
        ["/bin/sh", "-c", _CLEANUP_SCRIPT, "cleanup", *program],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, reading, 0)],
        setsid=True,
    )
    os.close(reading)
    return pid, writing
