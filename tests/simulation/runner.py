"""The simulated runner and its jobs, with the protocol of stoker.engine.supervisor.runner.

It serves one daemon connection at a time and reads each to its end; it writes `begun` to the
journal before the spawn and `ended` before the message, and enforces time limits and grace periods.
It can die at every step.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from stoker.engine.model import Outcome
from stoker.engine.supervisor.children import LEFTOVER_GRACE_SECONDS
from stoker.engine.supervisor.journal import JournalBegun, JournalExited
from stoker.engine.supervisor.messages import AttemptStarted, Order, Refused, RunnerEvent
from stoker.engine.supervisor.start_batching import StartBatch
from tests.simulation.world import KILL, TERM, Process, RunnerDied, World


@dataclass(frozen=True)
class Stop:
    attempt: int
    reason: str
    grace: float | None


@dataclass(frozen=True)
class ListRequest:
    """Asks for the running attempts."""


@dataclass(frozen=True)
class LiveAttempts:
    live: tuple[AttemptStarted, ...]
    segment: int


@dataclass(frozen=True)
class Rolled:
    segment: int


@dataclass
class Connection:
    to_runner: deque[Order | Stop | ListRequest] = field(default_factory=deque)
    to_daemon: deque[RunnerEvent | LiveAttempts | Rolled] = field(default_factory=deque)
    has_daemon: bool = True
    has_runner: bool = True


@dataclass
class Child:
    order: Order
    process: Process
    mono: float
    grace: float
    deadline: float | None
    reason: str | None = None
    kill_at: float | None = None
    is_recorded: bool = False  # whether the exit of its first process is in the journal


class Runner:
    # The daemon removes older segments after `Rolled`, so it must have all of their events.
    reports_starts_before_rolling = True
    rolls = 0.03  # how often a start opens a new segment

    def __init__(self, world: World, first: Connection, started_by: object) -> None:
        self.world = world
        self.started_by = started_by  # the daemon that becomes the parent of its orphans
        self.daemon: Connection | None = first
        self.backlog: deque[Connection] = deque()
        self.children: dict[int, Child] = {}
        self._starts = StartBatch()
        self.fuse: int | None = None  # it dies after this many points
        self.segment: int | None = None
        self.alive = True

    def has_work(self) -> bool:
        if self.daemon is None and self.backlog:
            return True
        if self.daemon is not None and (self.daemon.to_runner or not self.daemon.has_daemon):
            return True
        if any(not child.process.alive for child in self.children.values()):
            return True
        if any(self._has_leftovers(child) for child in self.children.values()):
            return True
        due = self.next_deadline()
        return self.segment is None or (due is not None and due <= self.world.clock.mono())

    def next_deadline(self) -> float | None:
        times = [t for c in self.children.values() for t in (c.deadline, c.kill_at)]
        times.append(self._starts.due_at)
        return min((time for time in times if time is not None), default=None)

    def step(self) -> None:
        """One iteration of its loop; may raise RunnerDied."""
        if self.segment is None:
            self._roll()
        if self.daemon is None and self.backlog:
            self.daemon = self.backlog.popleft()
        self._tick()
        self._report_starts(self._starts.due(self.world.clock.mono()))
        self._read_messages()
        if self.daemon is None and not self.children and not self.backlog:
            self.world.log("runner exits")
            self.die()

    def die(self) -> None:
        """The runner dies; its children keep running."""
        self.alive = False
        for connection in (self.daemon, *self.backlog):
            if connection is not None:
                connection.has_runner = False

    def _point(self) -> None:
        if self.fuse is not None and not self.world.is_calm:
            self.fuse -= 1
            if self.fuse <= 0:
                raise RunnerDied

    # -- jobs --------------------------------------------------------------------------------

    def _tick(self) -> None:
        now = self.world.clock.mono()
        for attempt, child in list(self.children.items()):
            if child.deadline is not None and child.deadline <= now:
                self._stop(Stop(attempt, "time_limit", None))
            if child.kill_at is not None and child.kill_at <= now:
                self.world.signal(child.process, KILL)
                child.kill_at = now + 1.0
            if child.process.alive and child.process.status is not None:
                self._record_exit(child)
            if self._has_leftovers(child):
                self.world.signal(child.process, TERM)
                child.kill_at = now + LEFTOVER_GRACE_SECONDS
            if not child.process.alive:
                self._point()
                del self.children[attempt]
                child.process.is_reaped = True
                self._end(_outcome(child))

    def _record_exit(self, child: Child, again: bool = False) -> None:
        """Record the exit of a first process with leftovers; again in each new segment."""
        if again or not child.is_recorded:
            child.is_recorded = True
            self._write(JournalExited(_outcome(child)))
            self._point()

    @staticmethod
    def _has_leftovers(child: Child) -> bool:
        process = child.process
        return process.alive and process.status is not None and child.kill_at is None

    def _stop(self, stop: Stop) -> None:
        child = self.children.get(stop.attempt)
        if child is None:
            return
        child.reason = child.reason or stop.reason
        kill_at = self.world.clock.mono() + (child.grace if stop.grace is None else stop.grace)
        if child.kill_at is None:
            self.world.signal(child.process, TERM)
            self._point()
        child.kill_at = kill_at if child.kill_at is None else min(kill_at, child.kill_at)
        child.deadline = None

    def _end(self, outcome: Outcome) -> None:
        self._write(outcome)
        self.world.known_ends.add(outcome.attempt)
        self._point()
        self._report_starts(self._starts.take([outcome]))
        self._send(outcome)

    def _report_starts(self, starts: list[AttemptStarted]) -> None:
        for started in starts:
            self._send(started)

    # -- orders ------------------------------------------------------------------------------

    def _read_messages(self) -> None:
        daemon = self.daemon
        if daemon is None:
            return
        # Some messages may not have arrived yet.
        count = len(daemon.to_runner)
        for _ in range(count if self.world.odds(0.7) else self.world.chance.randint(0, count)):
            message = daemon.to_runner.popleft()
            if isinstance(message, Order):
                self._launch(message)
            elif isinstance(message, Stop):
                self._stop(message)
            else:
                live = tuple(
                    AttemptStarted(attempt_id, child.process.pid, 0.0, child.mono)
                    for attempt_id, child in self.children.items()
                )
                self._send(LiveAttempts(live, self.segment or 0))
        if not daemon.to_runner and not daemon.has_daemon:
            daemon.has_runner = False
            self.daemon = None

    def _launch(self, order: Order) -> None:
        world, clock = self.world, self.world.clock
        self._point()
        kind = "ok"
        if not world.is_calm:
            kind = world.chance.choices(("ok", "full", "refused", "failed"), (90, 1, 4, 3))[0]
        if kind == "full":
            self._send(Refused(order.attempt, "No space left on device"))
            return
        if world.odds(self.rolls):
            self._roll()
            if self.reports_starts_before_rolling:
                self._report_starts(self._starts.all())
            for child in self.children.values():
                if child.is_recorded:
                    self._record_exit(child, again=True)
            self._send(Rolled(self.segment or 0))
        self._write(
            JournalBegun(
                attempt=order.attempt,
                job=order.job,
                number=order.number,
                at=clock.wall(),
                mono=clock.mono(),
                boot=world.boot,
                devices=order.devices,
            )
        )
        self._point()
        if kind == "refused":
            refused = Refused(order.attempt, "Resource temporarily unavailable")
            self._write(refused)
            self._point()
            self._send(refused)
        elif kind == "failed":
            self._end(
                Outcome(
                    attempt=order.attempt,
                    status=127 << 8,
                    ended_at=clock.wall(),
                    reason="start_failed",
                    detail="no",
                )
            )
        else:
            gpus, endless = len(order.devices), "endless" in order.argv
            process = world.spawn(
                order.attempt, order.job, order.number, order.devices, gpus, endless
            )
            process.parent = self.started_by
            self._point()
            limit = order.time_limit
            mono = clock.mono()
            deadline = None if limit is None else mono + limit
            self.children[order.attempt] = Child(
                order=order, process=process, mono=mono, grace=order.grace, deadline=deadline
            )
            self._starts.add(AttemptStarted(order.attempt, process.pid, clock.wall(), mono))

    # -- journal and messages ------------------------------------------------------------------

    def _roll(self) -> None:
        self.segment = max(self.world.segments, default=0) + 1
        self.world.segments[self.segment] = []
        self.world.log(f"  runner opens segment {self.segment}")

    def _write(self, record: JournalBegun | JournalExited | Outcome | Refused) -> None:
        assert self.segment is not None
        self.world.segments[self.segment].append(record)

    def _send(self, message: RunnerEvent | LiveAttempts | Rolled) -> None:
        if self.daemon is not None and self.daemon.has_daemon:
            self.daemon.to_daemon.append(message)


def _outcome(child: Child) -> Outcome:
    process = child.process
    return Outcome(
        attempt=process.attempt,
        status=process.status,
        ended_at=process.ended_at or 0.0,
        reason=child.reason,
    )
