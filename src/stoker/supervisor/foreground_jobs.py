"""Jobs as children of this process: what `stoker run` uses. They end when this process ends.

If this process is killed, the keeper (a shell that waits for our end of a pipe to close, because a
Python would cost every run its start) kills everything that still carries a tag of this run.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress

from stoker.core.model import Context, Outcome
from stoker.supervisor import process_tags
from stoker.supervisor.children import Children
from stoker.supervisor.log_pool import LogPool
from stoker.supervisor.messages import AttemptStarted, Order, RunnerEvent
from stoker.supervisor.spawn import Environment, encode_environment
from stoker.supervisor.start_batching import StartBatch
from stoker.supervisor.subreaper import become_subreaper

# A line: all is well. The end of the pipe: we are gone.
_KEEP = "trap '' HUP INT TERM; read -r _ && exit; exec \"$@\""


class ForegroundJobs:
    """The same face as RunnerLink, without a process in between."""

    has_backlog = False

    def __init__(self, tag_base: int, log_limit: int) -> None:
        become_subreaper()
        self._spares = LogPool()
        # Jobs of this run are part of the job that this run may itself be part of.
        outer_tags = os.environb.get(process_tags.ENVIRONMENT_VARIABLE, b"")
        self._children = Children(tag_base, log_limit, self._spares, outer_tags=outer_tags)
        self._contexts: dict[int, Environment] = {}
        self._facts: list[RunnerEvent] = []
        self._begins = StartBatch()
        self._wake, signal_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(signal_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        keeper, self._keeper = _start_keeper(tag_base)
        self._children.ignore(keeper)

    def ignore(self, pids: Iterable[int]) -> None:
        """Children of this process that are no jobs."""
        for pid in pids:
            self._children.ignore(pid)

    def pid_of(self, attempt: int) -> int | None:
        return self._children.pid_of(attempt)

    def fileno(self) -> int:
        return self._wake

    def launch(self, order: Order, context: Context, lease: list[int]) -> None:
        base = self._contexts.get(order.context)
        if base is None:
            base = self._contexts[order.context] = encode_environment(context.env)
        env = base | encode_environment(order.env.items())
        if order.time_limit is not None:
            env[b"STOKER_DEADLINE"] = b"%d" % (time.time() + order.time_limit)
        fact = self._children.start(order, context, env, lease)
        if isinstance(fact, AttemptStarted):
            self._begins.add(fact)
        elif fact is not None:
            self._facts.append(fact)

    def stop(self, attempt: int, reason: str, grace: float | None) -> None:
        self._children.stop(attempt, reason, grace)

    def events(self) -> tuple[list[RunnerEvent], bool]:
        try:
            os.read(self._wake, 4096)
        except BlockingIOError:
            pass
        now = time.monotonic()
        deadline = self._children.next_deadline()
        due = deadline is not None and deadline <= now
        outcomes: list[Outcome] = self._children.tick() if due else self._children.reap()
        for fact in self._children.late_facts():
            if isinstance(fact, AttemptStarted):
                self._begins.add(fact)
            else:
                self._facts.append(fact)
        begins = [*self._begins.of(outcomes), *self._begins.due(now)]
        facts, self._facts = [*begins, *self._facts, *self._children.stuck, *outcomes], []
        self._children.stuck.clear()
        return facts, True

    @property
    def has_facts(self) -> bool:
        return bool(self._facts)

    def next_deadline(self) -> float | None:
        times = (self._children.next_deadline(), self._begins.due_at)
        return min((at for at in times if at is not None), default=None)

    def dismiss_keeper(self) -> None:
        """Nothing is left that it would have to end."""
        with suppress(BrokenPipeError):  # somebody ended it
            os.write(self._keeper, b"\n")

    def close(self) -> None:
        """End whatever is left, at once."""
        for begun in self._children.living():
            self._children.stop(begun.attempt, "user", 0.0)
        self._children.tick()
        self._spares.close()


def _start_keeper(tag_base: int) -> tuple[int, int]:
    """Its PID and our end of the pipe, which stays open for as long as this process lives."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    program = (sys.executable, "-P", "-m", "stoker.supervisor.foreground_cleanup", str(tag_base))
    keeper = os.posix_spawn(
        "/bin/sh",
        ["/bin/sh", "-c", _KEEP, "keeper", *program],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, reading, 0)],
        setsid=True,
    )
    os.close(reading)
    return keeper, writing
