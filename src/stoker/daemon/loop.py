"""The loop: observe, decide, act. Hosted by the daemon, by `stoker run` and by the simulator.

One turn takes what happened (ends, pokes, timers), and in one transaction records it, decides and
claims; after the commit it orders the starts. The commit does not wait for the disk, so a freed
device does not either. A claimed job is active for everybody, so nobody can edit or cancel it
unseen between decision and start. If the process dies between commit and order, the parent never
heard of the attempt and recovery puts the job back (see recovery.py).

What the loop keeps in memory is never the only copy of anything that a decision depends on:
`missed_starts` compares its decision with that of a freshly loaded snapshot.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress

from stoker.core.model import (
    Context,
    Device,
    Outcome,
    RunningJob,
    Snapshot,
    Start,
)
from stoker.core.outcome.retry import Verdict, give_up, judge
from stoker.core.policy.decide import MOST_SEEN, decide, in_view, jobs_to_see
from stoker.daemon.diagnose import Diagnosis
from stoker.daemon.gpus.fixed_gpus import FixedGpus
from stoker.daemon.interfaces import Clock, EventListener, Host, Parent
from stoker.daemon.launch_order import OrderMaker
from stoker.daemon.profile_updates import Run, learn
from stoker.daemon.queue_snapshot import load_snapshot
from stoker.daemon.waiting_jobs import WaitingJobs
from stoker.devices.leases.lease import Lease
from stoker.errors import Upgraded
from stoker.settings import Settings
from stoker.store import attempts, device_settings, events, meta, ready_jobs, sweeps
from stoker.store.buffered_attempts import AttemptStore, BufferedAttemptStore
from stoker.store.database import Database, check_schema, translate
from stoker.store.profiles import Profiles
from stoker.supervisor.messages import AttemptStarted, Order, Refused, RunnerEvent, Stuck
from stoker.testing.failpoints import point

_BUSY_SECONDS = 0.005
# An attempt's id is on its processes and in the journal, so it must never be used again, even if
# its row goes; ids are taken from the books in blocks.
_ATTEMPTS_RESERVED = 1000
_TROUBLE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 10.0  # between two tries to start something on a host that refuses
_CLOCK_JUMP_SECONDS = 2.0
# Waiting times and overdue jobs change a decision although nothing happens.
_DECIDE_AGAIN_SECONDS = 1.0


class Loop:
    def __init__(
        self,
        db: Database,
        parent: Parent,
        host: Host,
        cards: FixedGpus,
        settings: Settings,
        clock: Clock,
        listener: EventListener,
        *,
        next_attempt: int = 1,
        log_for: Callable[[int, int], str | None] | None = None,
        folder_for: Callable[[int], str] | None = None,
        commit_seconds: float = 0.0,
    ) -> None:
        self.db = db
        self.parent = parent
        self.host = host
        self.cards = cards
        self.live: dict[int, RunningJob] = {}  # by attempt: ordered and not ended
        self.settings = settings
        self._clock = clock
        self._listener = listener
        self._maker = OrderMaker(db, settings, log_for, folder_for)
        self._examiner = Diagnosis(self._maker.log_for, self._maker.folder_for)
        self._next_attempt = next_attempt
        self._reserved = 0  # attempt ids below this are ours, and the books on disk say so
        self._reserving = 0
        # A store that nobody else writes may keep its transaction open over several turns.
        self._commit_seconds = commit_seconds
        self._books = BufferedAttemptStore(db) if commit_seconds else AttemptStore(db)
        self._commit_at: float | None = None
        self._heads = WaitingJobs(db, self._books)
        self._profiles = Profiles(db)
        self._limits: dict[str, int] = {}  # by share
        self._published: tuple[Device, ...] | None = None
        self._quarantined: dict[str, str] = {}
        self._forsaken: set[int] = set()  # attempts that were ended because their card is lost
        self._stops: dict[int, float | None] = {}
        self._facts: list[RunnerEvent] = []  # heard, not yet recorded
        self._orders: list[tuple[Order, Context, Lease]] = []  # claimed, not yet committed
        self._seen_version: int | None = None
        self._is_stale = True
        self._may_start = True  # something changed that a decision could depend on
        self._decide_at: float | None = None  # when time alone may have changed the decision
        self._refusal: str | None = meta.refusal(db)
        self._is_draining = False
        self.takes_work = True
        self._due_at: float | None = None
        self._retry_at: float | None = None
        self._paused_until = 0.0
        self.problem: str | None = None  # why nothing can be recorded now
        self._refusals = int(self._refusal is not None)  # since the last start
        self._clock_offset = clock.wall() - clock.mono()  # as of the last commit
        self._seen_offset = self._clock_offset

    # -- one turn ----------------------------------------------------------------------------

    def hear(self, facts: list[RunnerEvent]) -> None:
        """Facts free devices at once, even while the database cannot be written."""
        for fact in facts:
            if isinstance(fact, (Outcome, Refused)):
                job = self.live.pop(fact.attempt, None)
                self._forsaken.discard(fact.attempt)
                if job is not None and job.devices:
                    self.cards.ended(job, self._clock.mono())
                self._may_start = True
            elif isinstance(fact, AttemptStarted) and fact.mono and fact.attempt in self.live:
                self.live[fact.attempt] = _as_begun(self.live[fact.attempt], fact.mono)
            self._facts.append(fact)

    def turn(self) -> None:
        """Record what was heard and start what can start."""
        now = self._clock.mono()
        if self._retry_at is not None and now < self._retry_at and not self._facts:
            return
        self._retry_at = None
        try:
            if self._decide_at is not None and self._decide_at <= now:
                self._may_start = self._may_start or self._would_start()
                self._decide_at = now + _DECIDE_AGAIN_SECONDS if self._heads else None
            if not self._has_work():
                return
            if self._commit_at is None:
                self.db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            self._later(error)
            return
        try:
            self._refresh()
            finished = self._record()
            if self._is_stale:  # an end made jobs ready, or taught how much memory they need
                self._refresh()
            self._claim_jobs()
            self._commit(now)
        except Upgraded:
            self._undo_turn()
            raise
        except (sqlite3.Error, OSError) as error:
            self._undo_turn()
            if self._commit_seconds:  # earlier turns are undone as well: there is no going on
                if isinstance(error, OSError):
                    raise
                raise translate(error, self.db.folder) from error
            self._later(error)
            return
        self.problem = None
        self._reserved = max(self._reserved, self._reserving)
        self._clock_offset = self._seen_offset
        self._facts.clear()
        self.cards.recorded(self._quarantined)
        if self._listener.hears_ends_first:
            self._tell(finished)
            self._launch()
        else:
            self._launch()
            self._tell(finished)
        self._listener.committed()

    def _tell(self, finished: list[tuple[int, Outcome, Verdict]]) -> None:
        for job, outcome, verdict in finished:
            self._listener.finished(job, outcome, verdict)

    def _undo_turn(self) -> None:
        """Nothing of this turn has happened; what was heard stays to be recorded."""
        if self.db.connection.in_transaction:
            with suppress(sqlite3.Error):  # a failing disk; SQLite has rolled back by itself
                self.db.execute("ROLLBACK")
        for order, _, lease in self._orders:
            del self.live[order.attempt]
            lease.close()
        self._orders.clear()
        self._commit_at = None
        self._is_stale = True
        self._profiles.forget()

    def _commit(self, now: float) -> None:
        if self._commit_seconds:
            if self._commit_at is None:
                self._commit_at = now + self._commit_seconds
            if now < self._commit_at:
                return
        self._books.flush()
        point("daemon.before_commit")
        self.db.execute("COMMIT")
        self._commit_at = None
        point("daemon.after_commit")

    def commit_now(self) -> None:
        """Before somebody else uses the connection, or at the end."""
        if self._commit_at is not None:
            self._books.flush()
            self.db.execute("COMMIT")
            self._commit_at = None

    def refresh(self) -> None:
        """Somebody on this connection changed the queue; the next turn reads it anew."""
        self._is_stale = True

    def look_again(self) -> None:
        """The devices changed: somebody may be able to start."""
        self._may_start = True

    def end_on(self, devices: set[int]) -> None:
        """End what runs on devices that are lost; `--retries` says whether it is tried again."""
        for attempt, job in self.live.items():
            if attempt not in self._forsaken and not devices.isdisjoint(job.devices):
                self._forsaken.add(attempt)
                self.parent.stop(attempt, "gpu_lost", None)

    @property
    def has_waiting(self) -> bool:
        """Whether a job waits for nothing but devices, as of the last turn."""
        return bool(self._heads)

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
        if self._decide_at is not None:
            times.append(self._decide_at)
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

    def _later(self, error: sqlite3.Error | OSError) -> None:
        """The database cannot be written now: go on supervising, try again soon."""
        busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
        self._retry_at = self._clock.mono() + (_BUSY_SECONDS if busy else _TROUBLE_SECONDS)
        if not busy:
            self.problem = f"cannot write the queue ({error}); it is tried again every second"
            self._listener.trouble(self.problem)

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
        check_schema(self.db)  # whoever changed the queue may have migrated it
        self._seen_version, self._is_stale, self._may_start = version, False, True
        ready_jobs.release_due(self.db, wall)
        self._due_at = ready_jobs.next_due(self.db)
        self._heads.refresh()
        self._profiles.forget()
        self._limits = sweeps.limits(self.db)
        self.cards.decided(device_settings.device_settings(self.db))
        self._stops = dict(attempts.stop_requests(self.db))
        self._is_draining = meta.is_draining(self.db)

    def _follow_clock(self, wall: float) -> None:
        offset = wall - self._clock.mono()
        if abs(offset - self._clock_offset) > _CLOCK_JUMP_SECONDS:
            ready_jobs.shift_backoffs(self.db, offset - self._clock_offset)
            self._is_stale = True
        self._seen_offset = offset

    def snapshot(self, look: int) -> Snapshot:
        """What the policy sees: all that runs, the first few of each line that waits."""
        waiting = self._heads.first(look, self._seen_offset)
        running = self.live.values()
        profiles = {job.family for job in running} | {job.family for job in waiting}
        return Snapshot(
            self._clock.mono(), self.cards.in_order, self.host.cpu_slots, tuple(running),
            tuple(waiting), self._is_draining or not self.takes_work, self.cards.states,
            limits=self._limits, estimates=self._profiles.estimates(profiles),
        )  # fmt: skip

    def missed_starts(self) -> list[Start]:
        """What a freshly loaded snapshot would start although this loop would not.

        Empty unless a cache of the loop is out of date. Reads only, and only while the loop has
        nothing to record.
        """
        if self._facts or self._is_stale or self._may_start or self._commit_at is not None:
            return []
        if self.is_paused or not self.takes_work:
            return []
        if self._data_version() != self._seen_version:
            return []
        if self._would_start():  # time has passed, and the next turn starts it
            return []
        fresh, _ = load_snapshot(
            self.db, self._clock.mono(), self._seen_offset, self.cards.in_order,
            self.cards.states, self.host.cpu_slots, MOST_SEEN,
        )  # fmt: skip
        # Of an attempt that the runner has not reported yet, the loop alone knows the exact start.
        running = tuple(self.live.get(job.attempt, job) for job in fresh.running)
        fresh = fresh._replace(running=running)
        return list(decide(in_view(fresh), tells_why=False).starts)

    @property
    def is_paused(self) -> bool:
        """Whether the host refused a start and the next try is still to come."""
        return self._paused_until > self._clock.mono()

    def reload(self) -> None:
        """Read everything again that a decision depends on."""
        self._is_stale = True

    def _would_start(self) -> bool:
        """Whether a decision would start something now, by what the loop has in memory."""
        return bool(decide(self.snapshot(self._look()), tells_why=False).starts)

    def _look(self) -> int:
        return jobs_to_see(
            self._heads.requests(), self.cards.devices, self.live.values(), self.host.cpu_slots
        )

    # -- act ---------------------------------------------------------------------------------

    def _claim_jobs(self) -> None:
        if not self._may_start or self._clock.mono() < self._paused_until:
            return
        if self._next_attempt + _ATTEMPTS_RESERVED // 2 > self._reserved and self._heads:
            self._reserving = self._next_attempt + _ATTEMPTS_RESERVED
            meta.set_meta(self.db, "next_attempt", self._reserving)
            self._is_stale = True  # they may be used after the commit
            if self._next_attempt >= self._reserved:
                return
        self._paused_until, self._may_start, self._decide_at = 0.0, False, None
        # Again until nothing starts: a line may have more than it showed, a lease may be refused,
        # and which group has least changes with every start.
        while self._heads:
            plan = decide(self.snapshot(self._look()), tells_why=False)
            claimed = 0
            for start in plan.starts:
                if self._next_attempt >= self._reserved:
                    self._is_stale = True
                    break
                claimed += self._claim(start)
            if self._is_stale or (claimed == len(plan.starts) and not plan.has_room):
                break
            if not plan.starts:
                if self._heads:
                    self._decide_at = self._clock.mono() + _DECIDE_AGAIN_SECONDS
                break
        self.cards.settle()

    def _claim(self, start: Start) -> bool:
        job = self._heads.find(start.job)
        lease = self.cards.lease(job.request, start.devices)
        if lease is None:
            return False  # somebody else on this host has it; the cards say so now
        mono = self._clock.mono()
        claim = attempts.Claim(
            self._next_attempt, job.id, job.attempts + 1, start.devices, job.request.memory,
            self._clock.wall(), self.host.boot,
        )  # fmt: skip
        if not self._books.claim(job, claim):
            lease.close()
            self._is_stale = True  # cannot happen while we hold the lock; look again if it does
            return False
        self._heads.take(job)
        self._next_attempt += 1
        ends_by = None if job.time_limit is None else mono + job.time_limit
        self.live[claim.attempt] = RunningJob(
            job.id, claim.attempt, job.request, start.devices, mono, ends_by, job.share,
            job.family,
        )  # fmt: skip
        point("daemon.after_claim")
        by_number = {device.number: device for device in self.cards.devices}
        devices = tuple(by_number[number] for number in start.devices)
        self._orders.append((*self._maker.make(job, claim, devices), lease))
        return True

    def _launch(self) -> None:
        """The claims are in the books: order the starts."""
        for order, context, lease in self._orders:
            self._listener.starting(order.job, order.devices)
            self.parent.launch(order, context, lease.descriptors)
            point("daemon.after_launch")
            self._listener.started(order.job, order.devices)
        self._orders.clear()

    # -- record ------------------------------------------------------------------------------

    def _record_cards(self) -> None:
        """What readers and the next daemon should know of the devices."""
        cards = self.cards
        if cards.devices is not self._published and (cards.devices or not cards.is_watched):
            device_settings.set_devices(self.db, cards.devices, self.host.cpu_slots)
            self._published = cards.devices
        self._quarantined = cards.quarantines()
        for uuid, why in self._quarantined.items():
            device_settings.quarantine(self.db, uuid, why)

    def _record(self) -> list[tuple[int, Outcome, Verdict]]:
        self._record_cards()
        self._send_stops()
        ended = {fact.attempt for fact in self._facts if isinstance(fact, Outcome)}
        started: dict[int, float] = {}
        finished = []
        for fact in self._facts:
            if isinstance(fact, AttemptStarted):
                self._refuse(None)
                started[fact.attempt] = fact.at
                self._refusals = 0
                if fact.attempt not in ended:
                    self._books.begun(fact.attempt, fact.pid, fact.at, fact.mono, fact.pid_started)
            elif isinstance(fact, Outcome):
                point("daemon.before_finish")
                end = self._finish(fact, started.get(fact.attempt))
                if end is not None:
                    finished.append(end)
            elif isinstance(fact, Refused):
                self._undo(fact)
            else:
                self._record_stuck(fact)
        return finished

    def _finish(
        self, outcome: Outcome, started: float | None
    ) -> tuple[int, Outcome, Verdict] | None:
        facts = self._books.facts(outcome.attempt)
        if facts is None:
            return None  # recorded before a crash
        use = self.cards.use_of(outcome.attempt)
        outcome = self._examiner.examine(outcome, facts, use)
        begun = facts.started_at if started is None else started
        verdict = judge(
            outcome,
            attempts=facts.attempts,
            retries=facts.retries,
            restartable=facts.restartable,
            stop_requested=facts.stop_requested,
            base_delay=self.settings.retry_delay,
            on_oom=facts.on_oom,
            requeues=facts.requeues,
            seconds=outcome.ended_at - (begun or outcome.ended_at),
        )
        by_user = verdict.cause == "user"
        concerns_sweep = facts.sweep is not None and (by_user or verdict.delay is not None)
        if concerns_sweep and sweeps.is_stopped(self.db, facts.sweep or 0):
            verdict = verdict._replace(cause="sweep") if by_user else give_up(verdict)
        wall = self._clock.wall()
        if self._books.finish(facts, outcome, verdict, wall, started):
            self._is_stale = True
        line = self._heads.line(facts.line)
        if learn(self.db, self.cards, line, Run(facts, outcome, verdict, use, begun)):
            self._is_stale = True
        self._profiles.changed(facts.family)
        self._stops.pop(facts.job, None)
        return facts.job, outcome, verdict

    def _record_stuck(self, stuck: Stuck) -> None:
        """A job that cannot be ended keeps its devices; its events say why."""
        job = self.live.get(stuck.attempt)
        if job is not None:
            events.record_event(self.db, job.id, self._clock.wall(), "stuck", stuck.why)
            self._listener.trouble(f"job {job.id}: {stuck.why}")

    def _undo(self, refused: Refused) -> None:
        """The host had no room for another process: wait a little, count nothing."""
        self._refusals += 1
        pause = min(_TROUBLE_SECONDS * 2 ** min(self._refusals - 1, 10), LONGEST_PAUSE_SECONDS)
        self._paused_until = self._clock.mono() + pause
        self._books.flush()
        attempts.unclaim(self.db, refused.attempt, self._clock.wall(), refused.why)
        self._refuse(refused.why)
        self._is_stale = True
        self._listener.trouble(f"could not start a job: {refused.why}")

    def _refuse(self, why: str | None) -> None:
        """Record why starts are refused, or that they are not any more; `why` tells it."""
        if why != self._refusal:
            meta.set_refusal(self.db, why)
            self._refusal = why

    def _send_stops(self) -> None:
        if not self._stops:
            return
        by_job = {job.id: attempt for attempt, job in self.live.items()}
        for job, grace in self._stops.items():
            if job in by_job:
                self._books.flush()
                attempts.mark_stopping(self.db, job)
                point("daemon.before_stop")
                self.parent.stop(by_job[job], "user", grace)
        self._stops.clear()


def _as_begun(job: RunningJob, mono: float) -> RunningJob:
    """Its time counts from the start of the process, as the runner and later daemons count it."""
    ends_by = None if job.ends_by is None else job.ends_by + mono - job.started
    return job._replace(started=mono, ends_by=ends_by)
