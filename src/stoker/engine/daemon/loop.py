"""The scheduling loop. The daemon, `stoker run` and the simulator host it.

A tick has five steps: receive events, refresh, record, decide and claim, launch. All but the first
and the last happen in one transaction, whose commit does not wait for the disk. A claimed job is
active for every reader of the queue, so it cannot be edited or cancelled unnoticed between decision
and start. If the process dies between commit and launch, the runner does not know the attempt, and
recovery puts the job back (recovery.py).

What the loop keeps in memory is never the only copy of anything that a decision depends on:
`missed_starts` compares its decision with that of a freshly loaded snapshot.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress

from stoker.engine.daemon.diagnose import Diagnosis
from stoker.engine.daemon.event_recorder import EventRecorder, Finished
from stoker.engine.daemon.gpus.gpus import Gpus
from stoker.engine.daemon.gpus.memory_actions import MemoryAction
from stoker.engine.daemon.gpus.speed_meter import SpeedMeter
from stoker.engine.daemon.interfaces import Clock, EventListener, Host, Parent
from stoker.engine.daemon.job_starter import JobStarter
from stoker.engine.daemon.launch_order import OrderMaker
from stoker.engine.daemon.live_claims import LiveClaims
from stoker.engine.daemon.loop_state import LoopState
from stoker.engine.daemon.preempter import Preempter
from stoker.engine.daemon.queue_snapshot import load_snapshot
from stoker.engine.daemon.waiting_jobs import WaitingJobs
from stoker.engine.model import Device, Outcome, Plan, RunningJob, Snapshot, Start
from stoker.engine.policy.decide import MAX_JOBS_PER_GROUP, decide, limit_waiting_jobs
from stoker.engine.store import arrays, attempts, device_settings, host_resources, meta, ready_jobs
from stoker.engine.store.database import Database, check_schema, translate
from stoker.engine.store.profiles import Profiles
from stoker.engine.store.request_groups import group_limits
from stoker.engine.supervisor.messages import AttemptStarted, Refused, RunnerEvent
from stoker.errors import Upgraded
from stoker.settings import Settings
from stoker.testing.failpoints import failpoint

_BUSY_SECONDS = 0.005
_ERROR_SECONDS = 1.0
_CLOCK_JUMP_SECONDS = 2.0


class Loop:
    """`ends_on_error`: a tick raises if the database cannot be written, and is not repeated."""

    def __init__(
        self,
        db: Database,
        parent: Parent,
        host: Host,
        gpus: Gpus,
        settings: Settings,
        clock: Clock,
        listener: EventListener,
        *,
        next_attempt: int = 1,
        log_for: Callable[[int, int], str | None] | None = None,
        folder_for: Callable[[int], str] | None = None,
        chunk: str | None = None,
        ends_on_error: bool = False,
    ) -> None:
        self.db = db
        self.parent = parent
        self.host = host
        self.gpus = gpus
        self.running: dict[int, RunningJob] = {}  # by attempt: claimed and not ended
        self.settings = settings
        self.problem: str | None = None  # why nothing can be recorded now
        self._clock = clock
        self._listener = listener
        self._ends_on_error = ends_on_error
        self._state = LoopState(refusals=int(meta.refusal(db) is not None))
        self._waiting = WaitingJobs(db)
        self._profiles = Profiles(db)
        orders = OrderMaker(db, settings, log_for, folder_for, chunk)
        self._recorder = EventRecorder(
            db,
            self._state,
            waiting=self._waiting,
            profiles=self._profiles,
            gpus=gpus,
            diagnosis=Diagnosis(orders.log_for, orders.folder_for),
            settings=settings,
            clock=clock,
            listener=listener,
            order_hooks=orders.hooks,
        )
        self._preempter = Preempter(
            db,
            self._state,
            running=self.running,
            gpus=gpus,
            settings=settings,
            clock=clock,
        )
        self._starter = JobStarter(
            db,
            self._state,
            running=self.running,
            waiting=self._waiting,
            profiles=self._profiles,
            gpus=gpus,
            orders=orders,
            preempter=self._preempter,
            host=host,
            clock=clock,
            next_attempt=next_attempt,
        )
        self._live_claims = LiveClaims(db, self._state, self.running)
        self._speeds = SpeedMeter(orders.folder_for)
        self.refreshes = 0  # how often the queue was read again
        self._events: list[RunnerEvent] = []  # received, not yet recorded
        self._stops: dict[int, float | None] = {}  # jobs to stop, with their grace
        self._published: tuple[Device, ...] | None = None
        self._quarantined: dict[str, str] = {}
        self._lost: set[int] = set()  # attempts that were stopped because their GPU is lost
        self._clock_offset = clock.wall() - clock.mono()  # as of the last commit
        self._starter.clock_offset = self._clock_offset

    # -- inputs -----------------------------------------------------------------------------------

    def receive(self, events: list[RunnerEvent]) -> None:
        """Take in events. Their devices are free at once, even if nothing can be recorded now."""
        for event in events:
            if isinstance(event, (Outcome, Refused)):
                job = self.running.pop(event.attempt, None)
                self._lost.discard(event.attempt)
                if job is not None and job.devices:
                    self.gpus.attempt_ended(job, self._clock.mono())
                self._state.may_start = True
            elif isinstance(event, AttemptStarted) and event.mono and event.attempt in self.running:
                self.running[event.attempt] = _started(self.running[event.attempt], event.mono)
            self._events.append(event)

    def queue_changed(self) -> None:
        """The queue changed, or its copy in memory is in doubt: the next tick reads it again."""
        self._state.is_stale = True

    def devices_changed(self) -> None:
        """Some device may have become free."""
        self._state.may_start = True

    def follow_memory(self, actions: list[MemoryAction]) -> None:
        """Pause, continue and requeue jobs, and change their claims, after a sample of GPUs."""
        self._live_claims.apply(actions, self.parent, self._clock)
        clock = self._clock
        self._speeds.check(self.running, self.gpus.states, clock.mono(), clock.wall())

    def jobs_resumed(self) -> None:
        """After a crash, or before this process exits: continue all jobs that are paused."""
        self._live_claims.resume_all(self.parent)
        self.gpus.all_resumed()

    def pause_starts(self, seconds: float) -> None:
        """Start no job for a moment."""
        paused_until = self._clock.mono() + seconds
        self._state.paused_until = max(self._state.paused_until, paused_until)

    def stop_jobs_on(self, devices: set[int]) -> None:
        """Stop the jobs on lost devices; `--retries` decides whether they are retried."""
        for attempt, job in self.running.items():
            if attempt not in self._lost and not devices.isdisjoint(job.devices):
                self._lost.add(attempt)
                self.parent.stop(attempt, "gpu_lost", None)

    @property
    def takes_work(self) -> bool:
        """Whether jobs are started."""
        return self._starter.takes_work

    @takes_work.setter
    def takes_work(self, value: bool) -> None:
        self._starter.takes_work = value

    @property
    def decision(self) -> tuple[Snapshot, Plan] | None:
        """The last decision; None if no job waits. Another one has another `revision`."""
        return self._starter.decision

    @property
    def revision(self) -> int:
        """Counts decisions, and changes of jobs and devices that may need one."""
        return self._starter.revision

    @property
    def is_draining(self) -> bool:
        return self._starter.is_draining

    @property
    def has_waiting(self) -> bool:
        """Whether a job waits for nothing but devices, as of the last tick."""
        return bool(self._waiting)

    @property
    def has_unrecorded(self) -> bool:
        """Whether events are not in the database yet."""
        return bool(self._events)

    @property
    def is_paused(self) -> bool:
        """Whether starts are paused because the host refused one."""
        return self._state.paused_until > self._clock.mono()

    def next_wake(self) -> float | None:
        """When a tick is due even without an event (monotonic)."""
        return self._state.next_wake(self._clock)

    # -- one tick --------------------------------------------------------------------------------

    def tick(self) -> None:
        """Record what was received, and start what can start."""
        now = self._clock.mono()
        if not self._begin(now):
            return
        try:
            self._refresh()
            finished = self._record()
            if self._state.is_stale:  # an end made jobs ready, or changed an estimate
                self._refresh()
            self._starter.claim_jobs()
            failpoint("daemon.before_commit")
            self.db.commit()
            failpoint("daemon.after_commit")
        except Upgraded:
            self._roll_back()
            raise
        except (sqlite3.Error, OSError) as error:
            self._roll_back()
            if self._ends_on_error:
                if isinstance(error, OSError):
                    raise
                raise translate(error, self.db.folder) from error
            self._retry_later(error)
            return
        self._committed()
        if self._listener.wants_ends_first:
            self._notify(finished)
            self._starter.launch(self.parent, self._listener)
        else:
            self._starter.launch(self.parent, self._listener)
            self._notify(finished)
        self._preempter.send(self.parent)  # after the launch, in case that it concerns a new job
        self._listener.committed()

    def _begin(self, now: float) -> bool:
        """Open the transaction; False when there is nothing to do, or nothing can be written."""
        state = self._state
        if state.retry_at is not None and now < state.retry_at and not self._events:
            return False
        state.retry_at = None
        try:
            self._starter.reconsider(now)
            has_news = self._events or self._live_claims.has_unrecorded
            has_news = has_news or self._speeds.has_unrecorded
            has_news = has_news or self._clock_jump() is not None
            if not (has_news or state.needs_tick(self._clock) or self._was_changed()):
                return False
            self.db.begin()
        except sqlite3.Error as error:
            self._retry_later(error)
            return False
        return True

    def _was_changed(self) -> bool:
        return self.db.data_version() != self._state.seen_version

    def _refresh(self) -> None:
        """Read what other processes changed, and which delayed jobs became ready."""
        state, starter = self._state, self._starter
        version = self.db.data_version()
        wall = self._clock.wall()
        self._follow_clock(wall)
        is_due = state.due_at is not None and state.due_at <= wall
        if version == state.seen_version and not state.is_stale and not is_due:
            return
        self.refreshes += 1
        check_schema(self.db)  # the process that changed the queue may have migrated it
        state.seen_version, state.is_stale, state.may_start = version, False, True
        ready_jobs.release_due(self.db, wall)
        state.due_at = ready_jobs.next_due(self.db)
        self._waiting.refresh()
        self._profiles.forget()
        starter.machines.forget()
        ids = {request.array for request in self._waiting.requests()}
        starter.limits = group_limits(self.db) | arrays.limits(self.db, ids)
        starter.is_draining = meta.is_draining(self.db)
        self.gpus.apply_settings(device_settings.device_settings(self.db))
        self.gpus.apply_shares(device_settings.device_shares(self.db))
        self._stops = dict(attempts.stop_requests(self.db))
        self._preempter.queue_was_read()

    def _follow_clock(self, wall: float) -> None:
        jump = self._clock_jump()
        if jump is not None:
            ready_jobs.shift_backoffs(self.db, jump)
            self._state.is_stale = True
        self._starter.clock_offset = wall - self._clock.mono()

    def _clock_jump(self) -> float | None:
        """By how much the wall clock was set since the last commit; None if it was not set."""
        jump = self._clock.wall() - self._clock.mono() - self._clock_offset
        return jump if abs(jump) > _CLOCK_JUMP_SECONDS else None

    def _record(self) -> list[Finished]:
        self._record_devices()
        self._live_claims.record()
        for profile in self._speeds.record(self.db):
            self._profiles.changed(profile)
        self._send_stops()
        finished = self._recorder.record(self._events, self.running)
        for end in finished:
            self._stops.pop(end.job, None)
        return finished

    def _record_devices(self) -> None:
        """Record devices and quarantines for readers and for the next daemon."""
        gpus = self.gpus
        if gpus.devices is not self._published and (gpus.devices or not gpus.is_monitored):
            device_settings.set_devices(self.db, gpus.devices, self.host.cpu_slots)
            host_resources.publish(self.db, self.host.resources)
            self._published = gpus.devices
        self._quarantined = dict(gpus.quarantine.unrecorded)
        for uuid, why in self._quarantined.items():
            device_settings.quarantine(self.db, uuid, why)

    def _send_stops(self) -> None:
        if not self._stops:
            return
        by_job = {job.id: attempt for attempt, job in self.running.items()}
        for job, grace in self._stops.items():
            if job in by_job:
                attempts.mark_stopping(self.db, job)
                failpoint("daemon.before_stop")
                self.parent.stop(by_job[job], "user", grace)
        self._stops.clear()

    def _committed(self) -> None:
        self.problem = None
        self._starter.committed()
        self._clock_offset = self._starter.clock_offset
        self._events.clear()
        self._live_claims.committed()
        self._speeds.committed()
        self.gpus.quarantine.recorded(self._quarantined)

    def _roll_back(self) -> None:
        """Undo this tick; its events are recorded by a later one."""
        with suppress(sqlite3.Error):  # a failing disk; SQLite has rolled back already
            self.db.rollback()
        self._starter.rolled_back()
        self._preempter.rolled_back()
        self._state.is_stale = True
        self._profiles.forget()

    def _retry_later(self, error: sqlite3.Error | OSError) -> None:
        """The database cannot be written now: keep supervising jobs and repeat the tick soon."""
        is_busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
        self._state.retry_at = self._clock.mono() + (_BUSY_SECONDS if is_busy else _ERROR_SECONDS)
        if not is_busy:
            self.problem = f"cannot write the queue ({error}); retrying every second"
            self._listener.message(self.problem)

    def _notify(self, finished: list[Finished]) -> None:
        for end in finished:
            self._listener.finished(end.job, end.outcome, end.verdict)
            if end.is_trial:
                self._listener.trial_ended(end.job)

    # -- self-check ------------------------------------------------------------------------------

    @property
    def is_current(self) -> bool:
        """Whether everything that happened is recorded, and the queue was read since it changed."""
        state = self._state
        return not (self._events or state.is_stale or self._was_changed())

    def snapshot(self, depth: int) -> Snapshot:
        """What the policy would see now, with the first `depth` jobs of each request group."""
        return self._starter.snapshot(depth)

    def missed_starts(self) -> list[Start]:
        """The starts that a freshly loaded snapshot would make and this loop would not.

        Empty unless a cache of the loop is out of date, or no decision is due although a job could
        start. Reads only, and only while the loop has nothing to record.
        """
        state = self._state
        if self._events or state.is_stale or state.may_start or state.claims_wait:
            return []
        if self._live_claims.has_unrecorded or self._speeds.has_unrecorded:
            return []
        if self.is_paused or not self.takes_work or self._was_changed():
            return []
        if state.decide_at is not None and self._starter.would_start():
            return []  # time has passed, and the tick that is due then starts it
        fresh, _ = load_snapshot(
            self.db,
            self._clock.mono(),
            self._starter.clock_offset,
            self.gpus.in_order,
            self.gpus.states,
            self.host.cpu_slots,
            MAX_JOBS_PER_GROUP,
            self.host.resources,
        )
        # Of an attempt that the runner has not reported yet, only the loop knows the exact start.
        running = tuple(self.running.get(job.attempt, job) for job in fresh.running)
        fresh = fresh._replace(running=running)
        return list(decide(limit_waiting_jobs(fresh), with_reasons=False).starts)


def _started(job: RunningJob, mono: float) -> RunningJob:
    """The job with its time limit counted from the start of its process."""
    ends_by = None if job.ends_by is None else job.ends_by + mono - job.started
    return job._replace(started=mono, ends_by=ends_by)
