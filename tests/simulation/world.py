"""The simulated environment: time, processes, and the disk with the runner's journal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from stoker.engine.model import Outcome
from stoker.engine.supervisor.journal import JournalBegun, JournalExited
from stoker.engine.supervisor.messages import Refused

TERM, KILL = 15, 9
Record = JournalBegun | JournalExited | Outcome | Refused


class DaemonDied(BaseException):
    """kill -9 of the daemon. Not an Exception: nothing in the daemon may catch it."""


class RunnerDied(BaseException):
    """kill -9 of the runner."""


class Violation(AssertionError):
    """An invariant was violated."""


class Clock:
    """Virtual time, advanced by the simulator."""

    def __init__(self) -> None:
        self._wall = 1_700_000_000.0
        self._mono = 1_000.0

    def wall(self) -> float:
        return self._wall

    def mono(self) -> float:
        return self._mono

    def advance(self, seconds: float) -> None:
        self._wall += seconds
        self._mono += seconds

    def jump(self, seconds: float) -> None:
        self._wall += seconds

    def reboot(self) -> None:
        self._mono = 5.0


@dataclass
class Process:
    """All processes of one attempt. `status` is the real one, to compare the database with."""

    attempt: int
    job: int
    number: int
    devices: tuple[int, ...]
    gpus: int
    pid: int
    exits_at: float
    planned_status: int  # its wait status unless it gets a signal
    term_seconds: float | None  # seconds from SIGTERM to its end; None: ignores it
    leftover_seconds: float  # how long its leftovers outlive its first process
    status: int | None = None
    ended_at: float | None = None  # wall, of the first process
    gone_at: float | None = None  # mono, when the last process will end
    alive: bool = True
    is_reaped: bool = False  # its parent has waited for it
    parent: object = None  # the daemon that becomes its parent when its runner dies

    def next_change(self) -> float | None:
        if not self.alive:
            return None
        return self.exits_at if self.status is None else self.gone_at


@dataclass
class World:
    chance: Random
    clock: Clock = field(default_factory=Clock)
    boot: str = "boot-1"
    processes: dict[int, Process] = field(default_factory=dict)  # the newest of each attempt id
    segments: dict[int, list[Record]] = field(default_factory=dict)  # the journal on disk
    known_ends: set[int] = field(default_factory=set)  # attempts whose end was in the journal
    trace: list[str] = field(default_factory=list)
    is_calm: bool = False  # no more faults
    on_spawn: Callable[[Process], None] = lambda process: None
    _live: dict[int, Process] = field(default_factory=dict)
    _next_pid: int = 2

    def log(self, text: str) -> None:
        self.trace.append(f"{self.clock.mono():12.3f}  {text}")

    def odds(self, probability: float) -> bool:
        return self.chance.random() < probability

    # -- processes ---------------------------------------------------------------------------

    def live_processes(self) -> list[Process]:
        return list(self._live.values())

    def spawn(
        self,
        attempt: int,
        job: int,
        number: int,
        devices: tuple[int, ...],
        gpus: int,
        endless: bool,
    ) -> Process:
        chance = self.chance
        self._next_pid += 1
        status = chance.choices((0, 1 << 8, 42 << 8, 11, 9), (60, 20, 10, 5, 5))[0]
        lasts = chance.choices((0.0, chance.uniform(0.001, 2), chance.uniform(1, 90)), (1, 4, 3))[0]
        process = Process(
            attempt=attempt,
            job=job,
            number=number,
            devices=devices,
            gpus=gpus,
            pid=self._next_pid,
            exits_at=float("inf") if endless else self.clock.mono() + lasts,
            planned_status=status,
            term_seconds=chance.choice((0.0, 0.05, 3.0)) if self.odds(0.7) else None,
            leftover_seconds=chance.uniform(0.1, 30) if self.odds(0.05) else 0.0,
        )
        self.on_spawn(process)
        self.processes[attempt] = self._live[attempt] = process
        self.log(f"  spawned attempt {attempt} of job {job} on {devices}")
        self.exit_due_processes()
        return process

    def signal(self, process: Process, number: int) -> None:
        """Signal the whole tree, as kill_processes.terminate and kill_processes.kill do."""
        now = self.clock.mono()
        if not process.alive:
            return
        if number == KILL:
            process.leftover_seconds = 0.0
            if process.status is None:
                process.planned_status, process.exits_at = KILL, now
            else:
                process.gone_at = now
        elif process.term_seconds is not None:
            if process.status is not None:
                process.gone_at = min(process.gone_at or now, now + process.term_seconds)
            elif process.exits_at > now + process.term_seconds:
                process.planned_status, process.exits_at = TERM, now + process.term_seconds
        self.exit_due_processes()

    def exit_due_processes(self) -> None:
        """Let processes exit whose time has come."""
        now = self.clock.mono()
        for process in self.live_processes():
            if process.status is None and process.exits_at <= now:
                process.status, process.ended_at = process.planned_status, self.clock.wall()
                process.gone_at = now + process.leftover_seconds
                self.log(f"  attempt {process.attempt} exits with status {process.status}")
            if process.status is not None and (process.gone_at or 0.0) <= now:
                process.alive = False
                del self._live[process.attempt]

    def power_cycle(self, boot: str) -> None:
        for process in self.processes.values():
            process.alive, process.is_reaped = False, True
        self._live.clear()
        self.boot = boot
        self.clock.reboot()

    # -- the journal's disk --------------------------------------------------------------------

    def journal(self) -> list[Record]:
        return [record for number in sorted(self.segments) for record in self.segments[number]]

    def remove_segments_before(self, segment: int) -> None:
        for number in list(self.segments):
            if number < segment:
                del self.segments[number]
                self.log(f"  segment {number} is removed")
