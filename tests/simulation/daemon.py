"""The simulated daemon process: the real Loop and recovery, used as in engine/daemon/main.py.

Its interfaces to the outside are simulated: the connection to the runner, the pidfds of orphans and
the disk under SQLite. The daemon can die at each call of them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from typing import Any, cast

from stoker.engine.daemon.gpus.fixed_gpus import FixedGpus
from stoker.engine.daemon.interfaces import EventListener, Host
from stoker.engine.daemon.loop import Loop
from stoker.engine.daemon.recovery import recover
from stoker.engine.model import UNCOUNTED, Context, Device, HostResources, Outcome
from stoker.engine.outcome.retry import Verdict
from stoker.engine.store import attempts, meta
from stoker.engine.store.database import open_database
from stoker.engine.supervisor.journal import JournalBegun
from stoker.engine.supervisor.messages import AttemptStarted, Order, RunnerEvent
from stoker.engine.supervisor.orphans import Adoption, Orphans
from stoker.engine.supervisor.runner_client import RunnerClient
from stoker.errors import Error
from stoker.settings import Settings
from tests.simulation.runner import Connection, ListRequest, LiveAttempts, Rolled, Runner, Stop
from tests.simulation.world import KILL, TERM, DaemonDied, Process, Record, World

_RETRY_SECONDS = 0.05  # as in main.py, between attempts to recover
_POLL_SECONDS = 0.2  # as in orphans.py
_WRITES = ("UPDATE", "INSERT", "DELETE", "COMMIT")


class Fuse:
    """Counts calls to the outside; the daemon dies at the chosen one."""

    def __init__(self) -> None:
        self.left: int | None = None

    def burn(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                self.left = None
                raise DaemonDied


class Disk:
    """The disk under SQLite: full from the n-th write on, until a given time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.writes_left: int | None = None
        self.full_until = 0.0

    def write(self) -> None:
        now = self._world.clock.mono()
        if self.writes_left is not None:
            self.writes_left -= 1
            if self.writes_left <= 0:
                self.writes_left = None
                self.full_until = now + self._world.chance.choice((0.0, 0.5, 30.0))
                self._world.log("  the disk is full")
                raise sqlite3.OperationalError("database or disk is full")
        if now < self.full_until:
            raise sqlite3.OperationalError("database or disk is full")


class SimRunnerClient:
    """RunnerClient without sockets."""

    def __init__(self, daemon: SimDaemon) -> None:
        self._daemon = daemon
        self._host = daemon.host
        self._world = daemon.world
        self._fuse = daemon.fuse
        self._safe_before: int | None = None
        self.is_fresh = False
        self.connection = self._connect()

    def _connect(self) -> Connection:
        connection = Connection()
        runner = self._host.runner
        if runner is None or not runner.alive:
            self._host.runner = Runner(self._world, connection, self._daemon)
            self.is_fresh = True
        else:
            runner.backlog.append(connection)
            self.is_fresh = False
        return connection

    def request_live_attempts(self) -> None:
        self.connection.to_runner.append(ListRequest())

    def live_attempts(self) -> list[AttemptStarted] | None:
        """The answer, or None; other messages are dropped, because the journal has them too."""
        answers = self._answers()
        if answers:
            self.connection.to_daemon.clear()
            self._safe_before = answers[0].segment
            return list(answers[0].live)
        return None if self.connection.has_runner else []

    def has_answer(self) -> bool:
        return bool(self._answers()) or not self.connection.has_runner

    def _answers(self) -> list[LiveAttempts]:
        return [
            message for message in self.connection.to_daemon if isinstance(message, LiveAttempts)
        ]

    def launch(self, order: Order, context: Context, lease: list[int]) -> None:
        self._fuse.burn()
        self._host.on_order(order)
        if self.connection.has_runner:
            self.connection.to_runner.append(order)
        self._fuse.burn()

    def stop(self, attempt: int, reason: str, grace: float | None) -> None:
        self._fuse.burn()
        if self.connection.has_runner:
            self.connection.to_runner.append(Stop(attempt, reason, grace))
        self._fuse.burn()

    def events(self) -> tuple[list[RunnerEvent], bool]:
        is_alive = self.connection.has_runner
        events: list[RunnerEvent] = []
        while self.connection.to_daemon:
            message = self.connection.to_daemon.popleft()
            if isinstance(message, Rolled):
                self._safe_before = message.segment
            elif not isinstance(message, LiveAttempts):
                events.append(message)
        return events, is_alive

    def replace(self) -> None:
        self.connection.has_daemon = False
        self.connection = self._connect()

    def committed(self) -> None:
        if self._safe_before is not None:
            self._world.remove_segments_before(self._safe_before)
            self._safe_before = None

    def journal(self) -> list[Record]:
        self._fuse.burn()
        return self._world.journal()

    def forget_journal(self) -> None:
        self._fuse.burn()
        self._world.remove_segments_before(max(self._world.segments, default=0))


class _Orphan:
    def __init__(self, process: Process, has_handle: bool) -> None:
        self.process = process
        self.has_handle = has_handle
        self.is_reaped = False
        self.ends_by: float | None = None
        self.grace = 0.0
        self.kill_at: float | None = None
        self.reason: str | None = None
        self.exited: Outcome | None = None


class SimOrphans:
    """Orphans with simulated processes."""

    def __init__(self, daemon: SimDaemon) -> None:
        self._daemon = daemon
        self._world = daemon.world
        self._fuse = daemon.fuse
        self._by_attempt: dict[int, _Orphan] = {}

    def __len__(self) -> int:
        return len(self._by_attempt)

    def __contains__(self, attempt: int) -> bool:
        return attempt in self._by_attempt

    def adopt(self, adoptions: Iterable[Adoption]) -> set[int]:
        return {one.attempt for one in adoptions if self._adopt(one)}

    def _adopt(self, adoption: Adoption) -> bool:
        self._fuse.burn()
        attempt = adoption.attempt
        process = self._world.processes.get(attempt)
        if process is None:
            return False
        # The first process is found by its tag until its parent has reaped it.
        is_zombie = not process.is_reaped and process.parent is self._daemon
        has_handle = process.status is None if process.alive else is_zombie
        if adoption.exited is not None:
            has_handle = False
        if process.alive or has_handle:
            orphan = self._by_attempt[attempt] = _Orphan(process, has_handle)
            orphan.ends_by, orphan.grace = adoption.ends_by, adoption.grace
            if adoption.exited is not None:
                orphan.exited = adoption.exited
                orphan.reason = adoption.exited.reason
                self._world.signal(process, TERM)
                orphan.kill_at = self._world.clock.mono() + 2.0
            self._world.log(f"  attempt {attempt} is adopted as an orphan")
            return True
        return False

    def stop(self, attempt: int, reason: str, grace: float) -> None:
        self._fuse.burn()
        orphan = self._by_attempt[attempt]
        orphan.ends_by = None
        if orphan.kill_at is None:
            orphan.reason = reason
            self._world.signal(orphan.process, TERM)
            orphan.kill_at = self._world.clock.mono() + grace

    def next_deadline(self) -> float | None:
        times = [
            time
            for orphan in self._by_attempt.values()
            for time in (orphan.kill_at, orphan.ends_by)
            if time is not None
        ]
        for orphan in self._by_attempt.values():
            if not orphan.has_handle or orphan.is_reaped:
                times.append(self._world.clock.mono() + _POLL_SECONDS)
        return min(times, default=None)

    def has_exits(self) -> bool:
        """Whether a pidfd is readable."""
        return any(
            orphan.has_handle and not orphan.is_reaped and orphan.process.status is not None
            for orphan in self._by_attempt.values()
        )

    def reap(self) -> list[Outcome]:
        over = []
        now = self._world.clock.mono()
        for attempt, orphan in list(self._by_attempt.items()):
            process = orphan.process
            orphan.is_reaped = process.status is not None
            if orphan.ends_by is not None and now >= orphan.ends_by:
                self.stop(attempt, "time_limit", orphan.grace)
            if orphan.kill_at is not None and now >= orphan.kill_at:
                self._world.signal(process, KILL)
                orphan.kill_at = now + 1.0
            if process.alive:
                if process.status is not None and orphan.kill_at is None:
                    self._world.signal(process, TERM)
                    orphan.kill_at = now + 2.0
                continue
            del self._by_attempt[attempt]
            process.is_reaped = True
            is_known = process.parent is self._daemon or self._daemon.host.has_pidfd_exit_codes
            status = process.status if orphan.has_handle and is_known else None
            if orphan.exited is not None:
                status = orphan.exited.status
            reason = orphan.reason
            if status is None and reason is None:
                reason = "lost"
            ended_at = process.ended_at or self._world.clock.wall()
            over.append(Outcome(attempt=attempt, status=status, ended_at=ended_at, reason=reason))
        return over


class SimHost:
    """The state that outlives a daemon: folder, runner, devices."""

    def __init__(
        self,
        world: World,
        folder: str,
        devices: tuple[Device, ...],
        cpu_slots: int,
        resources: HostResources = UNCOUNTED,
    ) -> None:
        self.world = world
        self.folder = folder
        self.devices = devices
        self.cpu_slots = cpu_slots
        self.resources = resources
        self.runner: Runner | None = None
        self.has_pidfd_exit_codes = world.odds(0.5)  # Linux 6.15 and later
        self.on_order: Callable[[Order], None] = lambda order: None


class SimDaemon(EventListener):
    """One daemon process. `step` is one iteration of its event loop; may raise DaemonDied."""

    link: SimRunnerClient
    loop: Loop

    def __init__(self, host: SimHost) -> None:
        self.host = host
        self.world = host.world
        self.fuse = Fuse()
        self.disk = Disk(host.world)
        self.was_woken = False
        self.is_working = False
        self._settings = Settings(host.folder)
        self._db = open_database(host.folder, durable=False, timeout=0.0)
        self._execute = self._db.connection.execute
        self._db.execute = self._guarded_execute
        self._orphans = SimOrphans(self)
        self._link: SimRunnerClient | None = None
        self._live: list[AttemptStarted] = []
        self._wake_at: float | None = self.world.clock.mono()
        self._phase: Callable[[], None] = self._open

    def _guarded_execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if sql == "ROLLBACK":
            return self._execute(sql)
        self.fuse.burn()
        if sql.startswith(_WRITES):
            self.disk.write()
        cursor = self._execute(sql, parameters)
        if sql == "COMMIT":
            self.fuse.burn()
        return cursor

    def without_faults(self, query: Callable[[], Any]) -> Any:
        """Call a function of the checks, without simulated faults."""
        self._db.execute = self._execute
        try:
            return query()
        finally:
            self._db.execute = self._guarded_execute

    # -- event loop ---------------------------------------------------------------------------

    def has_work(self) -> bool:
        """Whether epoll would return now."""
        if self._wake_at is not None and self._wake_at <= self.world.clock.mono():
            return True
        if self._phase == self._wait_for_answer:
            return self.link.has_answer()
        return self.is_working and (
            self.was_woken
            or bool(self.link.connection.to_daemon)
            or not self.link.connection.has_runner
            or self._orphans.has_exits()
        )

    def next_wake(self) -> float | None:
        return self._wake_at

    def step(self) -> None:
        self._wake_at = None
        self._phase()
        if self.is_working:  # the epoll timeout is fixed now, even if clocks jump
            times = [self.loop.next_wake(), self._orphans.next_deadline()]
            self._wake_at = min((time for time in times if time is not None), default=None)

    def close(self) -> None:
        """The process has died: uncommitted changes are lost, messages already sent are not."""
        if self._link is not None:
            orders = self._link.connection.to_runner
            if orders and self.world.odds(0.1):  # some orders were still in its send buffer
                for _ in range(self.world.chance.randint(1, len(orders))):
                    orders.pop()
            self._link.connection.has_daemon = False
        self._db.close()

    # -- engine/daemon/main.py, step by step -------------------------------------------------------

    def _open(self) -> None:
        self._db.execute("PRAGMA wal_autocheckpoint=0")
        self.link = self._link = SimRunnerClient(self)
        begun = [r.attempt for r in self.link.journal() if isinstance(r, JournalBegun)]
        first = max(attempts.next_attempt(self._db), max(begun, default=0) + 1)
        host = Host(self.host.cpu_slots, self.world.boot, False, self.host.resources)
        gpus = FixedGpus(self.host.devices)
        self.loop = Loop(
            self._db, self, host, gpus, self._settings, self.world.clock, self, next_attempt=first
        )
        self._continue_with(self._publish)

    def _publish(self) -> None:
        try:
            with self._db.transaction():
                meta.set_meta(self._db, "daemon_version", "simulated")
        except Error:
            self._retry_later()
            return
        if self.link.is_fresh:
            self._continue_with(self._recover)
        else:
            self.link.request_live_attempts()
            self._phase = self._wait_for_answer

    def _wait_for_answer(self) -> None:
        live = self.link.live_attempts()
        if live is not None:
            self._live = live
            self._continue_with(self._recover)

    def _recover(self) -> None:
        link, orphans = cast(RunnerClient, self.link), cast(Orphans, self._orphans)
        try:
            recover(self.loop, link, orphans, self._live, self.world.clock.wall())
        except Error:
            self._retry_later()
            return
        self.world.log("daemon has recovered")
        self.is_working = True
        self._phase = self._work

    def _work(self) -> None:
        self.was_woken = False
        events, is_alive = self.link.events()
        self.loop.receive(events)
        if len(self._orphans):
            self.loop.receive(list(self._orphans.reap()))
        if not is_alive:
            self.world.log("daemon notices that the runner died")
            self.loop.tick()
            self.link.replace()
            self._live = []
            self.is_working, self.was_woken = False, True  # one more tick after the recovery
            self._continue_with(self._recover)
            return
        self.loop.tick()

    def _continue_with(self, phase: Callable[[], None]) -> None:
        self._phase, self._wake_at = phase, self.world.clock.mono()

    def _retry_later(self) -> None:
        self._wake_at = self.world.clock.mono() + _RETRY_SECONDS

    # -- the loop's parent and listener ----------------------------------------------------------

    def launch(self, order: Order, context: Context, lease: list[int]) -> None:
        self.link.launch(order, context, lease)

    def stop(self, attempt: int, reason: str, grace: float | None) -> None:
        if attempt in self._orphans:
            self._orphans.stop(attempt, reason, self._settings.grace if grace is None else grace)
        else:
            self.link.stop(attempt, reason, grace)

    def pause(self, attempt: int, seconds: float) -> None:
        raise AssertionError("the memory of simulated GPUs is not measured")

    def resume(self, attempt: int) -> None:
        raise AssertionError("the memory of simulated GPUs is not measured")

    def committed(self) -> None:
        self.link.committed()

    def finished(self, job: int, outcome: Outcome, verdict: Verdict) -> None:
        self.world.log(f"  recorded attempt {outcome.attempt} of job {job}: {verdict.cause}")
