"""Asks preemptible jobs to give way: what the loop does with the decisions of the policy.

The request is recorded in the transaction of the tick, with the GPUs that are kept for the job that
caused it. The signal is sent after the commit, and again whenever the queue was read again: a
daemon that died in between may not have sent it.
"""

from __future__ import annotations

from collections.abc import Callable

from stoker.engine.daemon.gpus.gpus import Gpus
from stoker.engine.daemon.interfaces import Clock, Parent
from stoker.engine.daemon.loop_state import DECIDE_AGAIN_SECONDS, LoopState
from stoker.engine.model import Plan, RunningJob, Snapshot, Start
from stoker.engine.policy.decide import decide
from stoker.engine.policy.preemption import Preemption, plan_for_others, plan_preemptions
from stoker.engine.store import attempts
from stoker.engine.store.database import Database
from stoker.engine.supervisor.messages import PREEMPTED
from stoker.settings import Settings
from stoker.text.limit_signal import seconds_to_save


class Preempter:
    """`running`: the loop's attempts that were claimed and have not ended."""

    def __init__(
        self,
        db: Database,
        state: LoopState,
        *,
        running: dict[int, RunningJob],
        gpus: Gpus,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._db = db
        self._state = state
        self._running = running
        self._gpus = gpus
        self._settings = settings
        self._clock = clock
        self._before: dict[int, RunningJob] = {}  # attempts that this tick asked, as they were
        self._may_have_unsent = True

    @property
    def has_candidates(self) -> bool:
        """Whether a preemptible job runs."""
        return any(job.request.preemptible for job in self._running.values())

    def would_ask(self, snapshot: Callable[[], Snapshot]) -> bool:
        """Whether a job would be asked to give way now."""
        return self.has_candidates and bool(self._plan(snapshot()))

    def allowed_starts(self, snapshot: Snapshot, plan: Plan) -> tuple[Start, ...]:
        """Return the starts of a plan without preemptible jobs that would have to give way at once.

        They start only when all other jobs have started or been given room.
        """
        if not plan.starts or not self.has_candidates:
            return plan.starts
        preemptible = {job.id for job in snapshot.waiting if job.request.preemptible}
        others = tuple(start for start in plan.starts if start.job not in preemptible)
        if others or self._plan(snapshot):
            return others
        return plan.starts

    def ask(self, snapshot: Callable[[], Snapshot]) -> None:
        """Record which jobs are asked to give way."""
        if not self.has_candidates:
            return
        seen = snapshot()
        for preemption in self._plan(seen):
            self._record(preemption)
        # With time, a job may be asked again, or an end that was expected does not come.
        if any(not job.request.preemptible for job in seen.waiting):
            soon = self._clock.mono() + DECIDE_AGAIN_SECONDS
            known = self._state.decide_at
            self._state.decide_at = soon if known is None else min(known, soon)

    def _plan(self, snapshot: Snapshot) -> tuple[Preemption, ...]:
        demands = [
            demand
            for demand in self._gpus.demands()
            if not demand.is_using or self._settings.preempt_for_others
        ]
        found: tuple[Preemption, ...] = ()
        if any(not job.request.preemptible for job in snapshot.waiting):
            found = plan_preemptions(snapshot, decide(snapshot))
        if demands:
            asked = {attempt for one in found for attempt in one.attempts}
            left = tuple(
                job._replace(gives_way=job.gives_way or job.attempt in asked)
                for job in snapshot.running
            )
            found += plan_for_others(snapshot._replace(running=left), demands)
        return found

    def _record(self, preemption: Preemption) -> None:
        now = self._clock.wall()
        to = preemption.outside or f"job {preemption.job}"
        for attempt in preemption.attempts:
            job = self._running[attempt]
            attempts.ask_to_give_way(self._db, attempt, job.id, now, to)
            self._before[attempt] = job
            self._running[attempt] = self._asked(job)
        if preemption.job:
            attempts.keep_devices(self._db, preemption.job, preemption.devices)
        self._state.is_stale = True  # the job now has devices that are kept for it
        self._may_have_unsent = True

    def _asked(self, job: RunningJob) -> RunningJob:
        settings = attempts.settings_of_job(self._db, job.id)
        grace = self._settings.grace if settings.grace is None else settings.grace
        seconds = seconds_to_save(grace, settings.signal)
        end = self._clock.mono() + seconds
        ends_by = end if job.ends_by is None else min(end, job.ends_by)
        return job._replace(gives_way=True, ends_by=ends_by)

    def queue_was_read(self) -> None:
        """The queue was read again, perhaps after a crash: send the signals again."""
        self._may_have_unsent = True

    def rolled_back(self) -> None:
        """The requests of this tick were not recorded."""
        for attempt, job in self._before.items():
            if attempt in self._running:
                self._running[attempt] = job
        self._before.clear()

    def send(self, parent: Parent) -> None:
        """After the commit: send the signals. To send one again changes nothing."""
        self._before.clear()
        if self._may_have_unsent:
            self._may_have_unsent = False
            for attempt, job in self._running.items():
                if job.gives_way:
                    parent.stop(attempt, PREEMPTED, None)
