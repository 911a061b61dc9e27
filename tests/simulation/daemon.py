"""The daemon's process, simulated: the real Loop and recovery, hosted as daemon/main.py does.

What stands at the edge is simulated: the link to the runner, the orphans' kernel handles, the
disk under SQLite. Each call over the edge is a place where the daemon can die.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, cast

from stoker.core.model import Context, Device, Outcome
from stoker.core.retry import Verdict
from stoker.daemon.loop import Host, Listener, Loop
from stoker.daemon.recovery import recover
from stoker.errors import Error
from stoker.settings import Settings
from stoker.store import ledger
from stoker.store.database import open_database
from stoker.supervisor.journal import JournalBegun
from stoker.supervisor.orders import Begun, Fact, Order
from stoker.supervisor.orphans import Orphans
from stoker.supervisor.runner_link import RunnerLink
from tests.simulation.runner import AskList, Connection, Living, Rolled, Runner, Stop
from tests.simulation.world import KILL, TERM, DaemonDied, Process, Record, World

_RETRY_SECONDS = 0.05  # as main.py sleeps between tries to recover
_LOOK_AGAIN_SECONDS = 0.2  # as orphans.py
_WRITES = ("UPDATE", "INSERT", "DELETE", "COMMIT")


class Fuse:
    """Counts calls over the edge; the daemon dies at the chosen one."""

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


class SimLink:
    """RunnerLink without sockets."""

    def __init__(self, host: SimHost, daemon: SimDaemon) -> None:
        self._host = host
        self._daemon = daemon
        self._world = host.world
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

    def ask_for_living(self) -> None:
        self.connection.to_runner.append(AskList())

    def living(self) -> list[Begun] | None:
        """The answer, if it is there; what came with it is dropped, for the journal has it."""
        messages = self.connection.to_daemon
        answers = [message for message in messages if isinstance(message, Living)]
        if answers:
            messages.clear()
            self._safe_before = answers[0].segment
            return list(answers[0].begun)
        return None if self.connection.has_runner else []

    def launch(self, order: Order, context: Context) -> None:
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

    def facts(self) -> tuple[list[Fact], bool]:
        alive = self.connection.has_runner
        facts: list[Fact] = []
        while self.connection.to_daemon:
            message = self.connection.to_daemon.popleft()
            if isinstance(message, Rolled):
                self._safe_before = message.segment
            elif not isinstance(message, Living):
                facts.append(message)
        return facts, alive

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
        self.kill_at: float | None = None
        self.reason: str | None = None


class SimOrphans:
    """Orphans without a kernel: the same answers from the simulated processes."""

    def __init__(self, world: World, fuse: Fuse, can_collect: Callable[[Process], bool]) -> None:
        self._world = world
        self._fuse = fuse
        self._can_collect = can_collect
        self._by_attempt: dict[int, _Orphan] = {}

    def __len__(self) -> int:
        return len(self._by_attempt)

    def __contains__(self, attempt: int) -> bool:
        return attempt in self._by_attempt

    def adopt(self, attempt: int, pid: int | None) -> bool:
        self._fuse.burn()
        process = self._world.processes.get(attempt)
        if process is None:
            return False
        is_ours_to_collect = process.is_zombie and self._can_collect(process)
        if process.alive or (pid == process.pid and is_ours_to_collect):
            self._by_attempt[attempt] = _Orphan(process, pid == process.pid)
            self._world.log(f"  attempt {attempt} is an orphan now")
            return True
        return False

    def stop(self, attempt: int, reason: str, grace: float) -> None:
        self._fuse.burn()
        orphan = self._by_attempt[attempt]
        if orphan.kill_at is None:
            orphan.reason = reason
            self._world.signal(orphan.process, TERM)
            orphan.kill_at = self._world.clock.mono() + grace

    def next_deadline(self) -> float | None:
        times = [o.kill_at for o in self._by_attempt.values() if o.kill_at is not None]
        for orphan in self._by_attempt.values():
            if not orphan.has_handle or orphan.process.status is not None:
                times.append(self._world.clock.mono() + _LOOK_AGAIN_SECONDS)
        return min(times, default=None)

    def has_news(self) -> bool:
        """Whether a handle became readable."""
        return any(o.has_handle and o.process.status is not None for o in self._by_attempt.values())

    def reap(self) -> list[Outcome]:
        over = []
        now = self._world.clock.mono()
        for attempt, orphan in list(self._by_attempt.items()):
            process = orphan.process
            if orphan.kill_at is not None and now >= orphan.kill_at:
                self._world.signal(process, KILL)
                orphan.kill_at = now + 1.0
            if process.alive:
                if process.status is not None and orphan.kill_at is None:
                    self._world.signal(process, TERM)
                    orphan.kill_at = now + 2.0
                continue
            del self._by_attempt[attempt]
            process.is_zombie = False
            status = process.status
            if not orphan.has_handle or not self._can_collect(process):
                status = None
            reason = orphan.reason
            if status is None and reason is None:
                reason = "lost"
            ended_at = process.ended_at or self._world.clock.wall()
            over.append(Outcome(attempt, status, ended_at, reason))
        return over


class SimHost:
    """What outlives a daemon: the folder, the runner, the devices."""

    def __init__(
        self, world: World, folder: str, devices: tuple[Device, ...], cpu_slots: int
    ) -> None:
        self.world = world
        self.folder = folder
        self.devices = devices
        self.cpu_slots = cpu_slots
        self.runner: Runner | None = None
        self.kernel_tells = world.odds(0.5)  # 6.15 and later: exit codes of non-children
        self.on_order: Callable[[Order], None] = lambda order: None


class SimDaemon(Listener):
    """One life of the daemon. `step` is one round of its event loop, or raises DaemonDied."""

    def __init__(self, host: SimHost) -> None:
        self.host = host
        self.world = host.world
        self.fuse = Fuse()
        self.disk = Disk(host.world)
        self.was_poked = True
        self.settings = Settings(host.folder)
        self._db = open_database(host.folder, durable=False, timeout=0.0)
        self._db.execute("PRAGMA wal_autocheckpoint=0")
        self._execute = self._db.connection.execute
        self._db.execute = self._guarded_execute
        self.link = SimLink(host, self)
        self.orphans = SimOrphans(self.world, self.fuse, self._can_collect)
        last = max(
            ledger.last_attempt(self._db),
            *(r.attempt for r in self.link.journal() if isinstance(r, JournalBegun)),
            0,
        )
        booted = Host(host.devices, host.cpu_slots, self.world.boot)
        self.loop = Loop(
            self._db, self, booted, self.settings, self.world.clock, self, next_attempt=last + 1
        )
        self._phase: Callable[[], bool] = self._publish
        self._living: list[Begun] = []
        self._retry_at: float | None = None

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

    def _can_collect(self, process: Process) -> bool:
        runner_was_ours = self.host.world is not None and process.parent is self
        return runner_was_ours or self.host.kernel_tells

    # -- life ----------------------------------------------------------------------------------

    def has_work(self) -> bool:
        """Whether its epoll would return now."""
        now = self.world.clock.mono()
        if self._phase == self._wait_for_living:
            return self.link.living_is_there()
        if self._phase != self._work:
            return self._retry_at is None or self._retry_at <= now
        wake = self.next_wake()
        return (
            self.was_poked
            or bool(self.link.connection.to_daemon)
            or not self.link.connection.has_runner
            or self.orphans.has_news()
            or (wake is not None and wake <= now)
        )

    def next_wake(self) -> float | None:
        if self._phase != self._work:
            return self._retry_at
        times = [self.loop.next_wake(), self.orphans.next_deadline()]
        return min((time for time in times if time is not None), default=None)

    @property
    def is_working(self) -> bool:
        return self._phase == self._work

    def step(self) -> None:
        if self._phase():
            self.world.let_time_work()

    def close(self) -> None:
        """The process is gone: whatever was not committed never was."""
        self.link.connection.has_daemon = False
        self._db.close()
