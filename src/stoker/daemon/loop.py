"""The loop: observe, decide, act. Hosted by the daemon, by `stoker run` and by the simulator.

One turn takes what happened (ends, pokes, timers), and in one transaction records it, decides and
claims; after the commit it orders the starts. The commit does not wait for the disk, so a freed
device does not either. A claimed job is active for everybody, so nobody can edit or cancel it
unseen between decision and start. If the process dies between commit and order, the parent never
heard of the attempt and recovery puts the job back (see recovery.py).
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Protocol

from stoker.core.commands import plain_words
from stoker.core.model import (
    Context,
    Device,
    Outcome,
    ReadyJob,
    RunningJob,
    Snapshot,
    Start,
)
from stoker.core.policy import decide
from stoker.core.record import Record
from stoker.core.retry import Verdict, judge
from stoker.failpoints import point
from stoker.settings import Settings
from stoker.store import ledger
from stoker.store.database import Database, translate
from stoker.supervisor.environment import job_environment
from stoker.supervisor.logs import job_folder, log_path
from stoker.supervisor.orders import Begun, Fact, Order, Refused

# How many ready jobs of one group are read at a time, and how many of them one decision sees.
_HEADS = 64
_LOOK = 16
_BUSY_SECONDS = 0.005
# An attempt's id is on its processes and in the journal, so it must never be used again, even if
# its row goes; ids are taken from the books in blocks.
_ATTEMPTS_RESERVED = 1000
_TROUBLE_SECONDS = 1.0
_CLOCK_JUMP_SECONDS = 2.0


class Parent(Protocol):
    """Whoever starts processes for the loop."""

    def launch(self, order: Order, context: Context) -> None: ...
    def stop(self, attempt: int, reason: str, grace: float | None) -> None: ...


class Clock(Protocol):
    def wall(self) -> float: ...
    def mono(self) -> float: ...


class Host(Record):
    devices: tuple[Device, ...]
    cpu_slots: int
    boot: str


class Listener:
    """Who wants to be told; the foreground run prints from here."""

    def started(self, job: int, devices: tuple[int, ...]) -> None: ...
    def finished(self, job: int, outcome: Outcome, verdict: Verdict) -> None: ...
    def committed(self) -> None: ...
    def trouble(self, text: str) -> None: ...


class Loop:
    def __init__(
        self,
        db: Database,
        parent: Parent,
        host: Host,
        settings: Settings,
        clock: Clock,
        listener: Listener,
        *,
        next_attempt: int = 1,
        log_for: Callable[[ReadyJob, int], str | None] | None = None,
        commit_seconds: float = 0.0,
    ) -> None:
        self.db = db
        self.parent = parent
        self.host = host
        self.live: dict[int, RunningJob] = {}  # by attempt: ordered and not ended
        self.settings = settings
        self._clock = clock
        self._listener = listener
        self._log_for = log_for or self._own_log
        self._next_attempt = next_attempt
        self._reserved = 0  # attempt ids below this are ours, and the books on disk say so
        self._reserving = 0
        # A store that nobody else writes may keep its transaction open over several turns.
        self._commit_seconds = commit_seconds
        self._commit_at: float | None = None
        self._slots = sum(device.slots for device in host.devices) + host.cpu_slots
        self._by_index = {device.number: device for device in host.devices}
        self._contexts: dict[int, tuple[Context, bool]] = {}
        self._heads: dict[int, deque[ReadyJob]] = {}
        self._stops: dict[int, float | None] = {}
        self._facts: list[Fact] = []  # heard, not yet recorded
        self._orders: list[tuple[Order, Context]] = []  # claimed, not yet committed
        self._seen_version: int | None = None
        self._is_stale = True
        self._may_start = True  # something changed that a decision could depend on
        self._is_draining = False
        self.takes_work = True
        self._due_at: float | None = None
        self._retry_at: float | None = None
        self._paused_until = 0.0
        self._clock_offset = clock.wall() - clock.mono()  # as of the last commit
        self._seen_offset = self._clock_offset

    # -- one turn ----------------------------------------------------------------------------

    def hear(self, facts: list[Fact]) -> None:
        """Facts free devices at once, even while the database cannot be written."""
        for fact in facts:
            if isinstance(fact, (Outcome, Refused)):
                self.live.pop(fact.attempt, None)
                self._may_start = True
            self._facts.append(fact)

    def turn(self) -> None:
        """Record what was heard and start what can start."""
        now = self._clock.mono()
        if self._retry_at is not None and now < self._retry_at and not self._facts:
            return
        self._retry_at = None
        if not self._has_work():
            return
        try:
            if self._commit_at is None:
                self.db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            self._later(error)
            return
        try:
            self._refresh()
            finished = self._record()
            self._claim_jobs()
            self._commit(now)
        except sqlite3.Error as error:
            self._undo_turn()
            if self._commit_seconds:  # earlier turns are undone as well: there is no going on
                raise translate(error, self.db.folder) from error
            self._later(error)
            return
        self._reserved = max(self._reserved, self._reserving)
        self._clock_offset = self._seen_offset
        self._facts.clear()
        self._launch()
        for job, outcome, verdict in finished:
            self._listener.finished(job, outcome, verdict)
        self._listener.committed()

    def _undo_turn(self) -> None:
        """Nothing of this turn has happened; what was heard stays to be recorded."""
        if self.db.connection.in_transaction:
            self.db.execute("ROLLBACK")
        for order, _ in self._orders:
            del self.live[order.attempt]
        self._orders.clear()
        self._commit_at = None
        self._is_stale = True

    def _commit(self, now: float) -> None:
        if self._commit_seconds:
            if self._commit_at is None:
                self._commit_at = now + self._commit_seconds
            if now < self._commit_at:
                return
        point("daemon.before_commit")
        self.db.execute("COMMIT")
        self._commit_at = None
        point("daemon.after_commit")

    def commit_now(self) -> None:
        """Before somebody else uses the connection, or at the end."""
        if self._commit_at is not None:
            self.db.execute("COMMIT")
            self._commit_at = None

    def refresh(self) -> None:
        """Somebody on this connection changed the queue; the next turn reads it anew."""
        self._is_stale = True

    @property
    def has_unrecorded(self) -> bool:
        return bool(self._facts)

    def next_wake(self) -> float | None:
        """When a turn is due although nothing happens (monotonic)."""
        if self._retry_at is not None:
            return self._retry_at  # nothing can be done before
        times = []
        if self._is_stale:
            times.append(self._clock.mono())
        if self._commit_at is not None:
            times.append(self._commit_at)
        if self._paused_until > self._clock.mono():
            times.append(self._paused_until)
        if self._due_at is not None:
            times.append(self._clock.mono() + max(0.0, self._due_at - self._clock.wall()))
        return min(times, default=None)

    def _has_work(self) -> bool:
        return bool(
            self._facts
            or self._is_stale
            or (self._commit_at is not None and self._commit_at <= self._clock.mono())
            or (self._due_at is not None and self._due_at <= self._clock.wall())
            or (self._may_start and self._paused_until <= self._clock.mono())
            or self._data_version() != self._seen_version
        )

    def _later(self, error: sqlite3.Error) -> None:
        """The database cannot be written now: go on supervising, try again soon."""
        busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
        self._retry_at = self._clock.mono() + (_BUSY_SECONDS if busy else _TROUBLE_SECONDS)
        if not busy:
            self._listener.trouble(str(error))

    def _data_version(self) -> int:
        return int(self.db.execute("PRAGMA data_version").fetchone()[0])

    # -- observe -----------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Read what others changed, and whose time has come."""
        # While we keep the transaction open, nobody else can have changed anything.
        version = self._data_version() if self._commit_at is None else self._seen_version
        wall = self._clock.wall()
        self._follow_clock(wall)
        due = self._due_at is not None and self._due_at <= wall
        if version == self._seen_version and not self._is_stale and not due:
            return
        self._seen_version, self._is_stale, self._may_start = version, False, True
        ledger.release_due(self.db, wall)
        self._due_at = ledger.next_due(self.db)
        self._heads = {gpus: deque() for gpus in ledger.request_groups(self.db)}
        self._stops = dict(ledger.stop_requests(self.db))
        self._is_draining = ledger.is_draining(self.db)

    def _follow_clock(self, wall: float) -> None:
        offset = wall - self._clock.mono()
        if abs(offset - self._clock_offset) > _CLOCK_JUMP_SECONDS:
            ledger.shift_backoffs(self.db, offset - self._clock_offset)
            self._is_stale = True
        self._seen_offset = offset

    def snapshot(self) -> Snapshot:
        """What the policy sees: all that runs, the heads of what waits."""
        look = self._look()
        waiting: list[ReadyJob] = []
        for gpus, jobs in list(self._heads.items()):
            if not jobs:
                jobs.extend(ledger.heads(self.db, gpus, _HEADS))
            if not jobs:
                del self._heads[gpus]
            waiting += islice(jobs, look)
        return Snapshot(
            self._clock.mono(), self.host.devices, self.host.cpu_slots,
            tuple(self.live.values()), tuple(waiting),
            self._is_draining or not self.takes_work,
        )  # fmt: skip

    def _look(self) -> int:
        """How many heads of each group one decision sees.

        Where every job wants one GPU at most, no more can start than there are free slots; a wide
        one may be overtaken, so then it pays to look further down.
        """
        if any(gpus > 1 for gpus in self._heads):
            return _LOOK
        busy = sum(len(job.devices) or 1 for job in self.live.values())
        return max(1, min(_LOOK, self._slots - busy + 1))

    # -- act ---------------------------------------------------------------------------------

    def _claim_jobs(self) -> None:
        if not self._may_start or self._clock.mono() < self._paused_until:
            return
        if self._next_attempt + _ATTEMPTS_RESERVED // 2 > self._reserved and self._heads:
            self._reserving = self._next_attempt + _ATTEMPTS_RESERVED
            ledger.set_meta(self.db, "next_attempt", self._reserving)
            self._is_stale = True  # they may be used after the commit
            if self._next_attempt >= self._reserved:
                return
        self._paused_until, self._may_start = 0.0, False
        while self._heads:
            look = self._look()
            plan = decide(self.snapshot())
            for start in plan.starts:
                if self._next_attempt >= self._reserved:
                    self._is_stale = True
                    break
                self._claim(start)
            # Go on only if a group may have more than it showed.
            if self._is_stale or (len(plan.starts) < look and all(self._heads.values())):
                break

    def _claim(self, start: Start) -> None:
        job = self._take_head(start.job)
        mono = self._clock.mono()
        claim = ledger.Claim(
            self._next_attempt, job.id, job.attempts + 1, start.devices, self._clock.wall(),
            self.host.boot,
        )  # fmt: skip
        if not ledger.claim(self.db, claim):
            self._is_stale = True  # cannot happen while we hold the lock; look again if it does
            return
        self._next_attempt += 1
        ends_by = None if job.time_limit is None else mono + job.time_limit
        self.live[claim.attempt] = RunningJob(
            job.id, claim.attempt, job.gpus, start.devices, mono, ends_by
        )
        point("daemon.after_claim")
        devices = tuple(self._by_index[index] for index in start.devices)
        self._orders.append(self._order(job, claim, devices))

    def _launch(self) -> None:
        """The claims are in the books: order the starts."""
        for order, context in self._orders:
            self.parent.launch(order, context)
            point("daemon.after_launch")
            self._listener.started(order.job, order.devices)
        self._orders.clear()

    def _take_head(self, id: int) -> ReadyJob:
        for jobs in self._heads.values():
            for place, job in enumerate(jobs):
                if job.id == id:
                    del jobs[place]
                    return job
        raise KeyError(id)

    def _order(
        self, job: ReadyJob, claim: ledger.Claim, devices: tuple[Device, ...]
    ) -> tuple[Order, Context]:
        context, has_plain_shell = self._context(job.context)
        words = plain_words(job.argv[0]) if job.shell and has_plain_shell else None
        log = job.stdout or self._log_for(job, claim.number)
        folder = job_folder(self.settings.state_dir, job.id)
        order = Order(
            claim.attempt, job.id, claim.number, words or job.argv, job.shell and words is None,
            job.context, job_environment(job, claim.number, devices, folder, context.cwd),
            claim.devices, log, job.stderr, job.stdout is None, job.time_limit,
            self.settings.grace if job.grace is None else job.grace, job.keep_children,
        )  # fmt: skip
        return order, context

    def _context(self, id: int) -> tuple[Context, bool]:
        known = self._contexts.get(id)
        if known is None:
            if len(self._contexts) > 100:
                self._contexts.clear()
            context = ledger.context(self.db, id)
            # Start-up files and exported functions can change what a plain word means.
            changed = any(
                key == "BASH_ENV" or key.startswith("BASH_FUNC_") for key, _ in context.env
            )
            known = self._contexts[id] = (context, not changed)
        return known

    def _own_log(self, job: ReadyJob, number: int) -> str:
        return log_path(self.settings.state_dir, job.id, number)

    # -- record ------------------------------------------------------------------------------

    def _record(self) -> list[tuple[int, Outcome, Verdict]]:
        self._send_stops()
        ended = {fact.attempt for fact in self._facts if isinstance(fact, Outcome)}
        started: dict[int, float] = {}
        finished = []
        for fact in self._facts:
            if isinstance(fact, Begun):
                started[fact.attempt] = fact.at
                if fact.attempt not in ended:
                    ledger.begun(self.db, *fact)
            elif isinstance(fact, Outcome):
                point("daemon.before_finish")
                end = self._finish(fact, started.get(fact.attempt))
                if end is not None:
                    finished.append(end)
            else:
                self._undo(fact)
        return finished

    def _finish(
        self, outcome: Outcome, started: float | None
    ) -> tuple[int, Outcome, Verdict] | None:
        facts = ledger.facts(self.db, outcome.attempt)
        if facts is None:
            return None  # recorded before a crash
        job = facts.job
        verdict = judge(
            outcome,
            attempts=facts.attempts,
            retries=facts.retries,
            restartable=facts.restartable,
            stop_requested=facts.stop_requested,
            base_delay=self.settings.retry_delay,
        )
        wall = self._clock.wall()
        if ledger.finish(self.db, facts, outcome, verdict, wall, started):
            self._is_stale = True
        self._stops.pop(job, None)
        return job, outcome, verdict

    def _undo(self, refused: Refused) -> None:
        """The host had no room for another process: wait a little, count nothing."""
        self._paused_until = self._clock.mono() + _TROUBLE_SECONDS
        ledger.unclaim(self.db, refused.attempt, self._clock.wall(), refused.why)
        self._is_stale = True
        self._listener.trouble(f"could not start a job: {refused.why}")

    def _send_stops(self) -> None:
        if not self._stops:
            return
        by_job = {job.id: attempt for attempt, job in self.live.items()}
        for job, grace in self._stops.items():
            if job in by_job:
                ledger.stopping(self.db, job)
                point("daemon.before_stop")
                self.parent.stop(by_job[job], "user", grace)
        self._stops.clear()
