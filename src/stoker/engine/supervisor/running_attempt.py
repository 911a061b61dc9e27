"""What the parent of an attempt knows about it, from the order to its end."""

from __future__ import annotations

import time

from stoker.engine.model import Context, Outcome
from stoker.engine.supervisor.kill_processes import KillRetries
from stoker.engine.supervisor.messages import AttemptStarted, Order
from stoker.engine.supervisor.process_table import ticks_since_boot
from stoker.engine.supervisor.spawn import Environment, HostError, StartFailed, StartReport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.engine.supervisor.start_hooks import Container


class RunningAttempt:
    """A running attempt, or one whose first process has exited and left others behind."""

    __slots__ = (
        "began", "code_note", "cold_start", "container", "deadline", "failure", "grace",
        "is_recorded", "kill_at", "kills", "lease", "leftover_at", "log_size", "mono", "note",
        "order", "outcome", "pid", "poll_at", "reason", "report", "resume_at", "shell", "tag",
        "warn_at",
    )  # fmt: skip

    def __init__(self, order: Order, tag: int, lease: list[int]) -> None:
        self.order = order
        self.lease = lease  # descriptors that hold its GPUs until none of its processes is left
        self.tag = tag
        self.pid = 0
        self.mono = 0.0
        self.began = ticks_since_boot()  # not after the start of any of its processes
        self.grace = order.grace
        self.reason: str | None = None
        self.deadline: float | None = None
        self.warn_at: float | None = None
        self.log_size = 0  # at the last check
        self.shell: str | None = None  # the shell that runs its command
        self.kill_at: float | None = None
        self.leftover_at: float | None = None  # when what outlives its first process gets SIGTERM
        self.resume_at: float | None = None  # when its processes continue at the latest
        self.kills = KillRetries()
        self.outcome: Outcome | None = None
        self.is_recorded = False  # whether the exit of its first process is in the journal
        self.report: StartReport | None = None  # of a forked start that is under way
        self.code_note = order.code_note
        self.poll_at = 0.0  # when to read that report
        self.failure: HostError | StartFailed | None = None
        self.note: str | None = None  # why its warm start became a cold one
        self.cold_start: tuple[Context, Environment] | None = None  # set during a warm start
        self.container: Container | None = None

    def deadlines(self) -> list[float]:
        """When its time limit, a grace period, a pause or a wait for others is over (monotonic)."""
        leftover_at = self.leftover_at if self.kill_at is None else None
        polls_at = None if self.report is None else self.poll_at
        removed_at = None if self.container is None else self.container.gives_up_at
        times = (self.deadline, self.kill_at, leftover_at, self.warn_at, self.resume_at)
        return [at for at in (*times, polls_at, removed_at) if at is not None]

    def started(self) -> AttemptStarted:
        """The event of its start."""
        return AttemptStarted(
            self.order.attempt,
            self.pid,
            time.time(),
            self.mono,
            note=self.note,
            code_note=self.code_note,
        )
