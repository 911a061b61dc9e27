"""Applies decisions about the GPU memory of running jobs, and records them.

Jobs are paused, continued and stopped at once. The next tick records that for `show` and `why`,
together with claims and estimates. Records are kept until they are committed; writing one twice
does no harm, apart from an event that is shown twice.
"""

from __future__ import annotations

from stoker.engine.daemon.gpus.memory_actions import (
    ContinueJob,
    MemoryAction,
    MemoryLearned,
    PauseJob,
    RequeueJob,
    SetClaim,
)
from stoker.engine.daemon.interfaces import Clock, Parent
from stoker.engine.daemon.loop_state import LoopState
from stoker.engine.gpus.measured_group import MAX_PAUSE_SECONDS
from stoker.engine.model import RunningJob
from stoker.engine.policy.placement import is_measured
from stoker.engine.profiles.gpu_memory import budget
from stoker.engine.store import attempts, events, profiles
from stoker.engine.store.database import Database

# The parent of a paused job continues it after this time, even if no daemon is left.
_PARENT_SECONDS = MAX_PAUSE_SECONDS + 15.0


class LiveClaims:
    """`running`: the loop's attempts that were claimed and have not ended."""

    def __init__(self, db: Database, state: LoopState, running: dict[int, RunningJob]) -> None:
        self._db = db
        self._state = state
        self._running = running
        self._unrecorded: list[tuple[MemoryAction, int, float]] = []  # action, job, wall clock

    @property
    def has_unrecorded(self) -> bool:
        return bool(self._unrecorded)

    def apply(self, actions: list[MemoryAction], parent: Parent, clock: Clock) -> None:
        for action in actions:
            if isinstance(action, MemoryLearned):
                self._unrecorded.append((action, 0, clock.wall()))
                continue
            job = self._running.get(action.attempt)
            if job is None:
                continue
            if isinstance(action, PauseJob):
                parent.pause(action.attempt, _PARENT_SECONDS)
            elif isinstance(action, ContinueJob):
                parent.resume(action.attempt)
            elif isinstance(action, RequeueJob):
                parent.stop(action.attempt, "crowded", 0.0 if action.at_once else None)
            elif isinstance(action, SetClaim):
                self._set_claim(job, action.memory)
            self._unrecorded.append((action, job.id, clock.wall()))

    def resume_all(self, parent: Parent) -> None:
        """Continue all paused jobs; a pause just before a crash may not be recorded."""
        recorded = set(attempts.paused(self._db))
        for attempt, job in self._running.items():
            if attempt in recorded:
                self._unrecorded.append((ContinueJob(attempt), job.id, 0.0))
            if attempt in recorded or is_measured(job.request):
                parent.resume(attempt)

    def record(self) -> None:
        """Write what was applied; inside the transaction of a tick."""
        if not self._unrecorded:
            return
        for action, job, at in self._unrecorded:
            if isinstance(action, MemoryLearned):
                self._learn(action)
            elif isinstance(action, SetClaim):
                attempts.set_claim(self._db, action.attempt, action.memory)
            elif isinstance(action, PauseJob):
                attempts.set_paused(self._db, action.attempt, at)
                events.record_event(self._db, job, at, "paused", action.why)
            elif isinstance(action, ContinueJob):
                attempts.set_paused(self._db, action.attempt, None)
                if at:
                    events.record_event(self._db, job, at, "continued")
            else:
                events.record_event(self._db, job, at, "crowded", action.why)

    def committed(self) -> None:
        self._unrecorded.clear()

    def _learn(self, learned: MemoryLearned) -> None:
        is_first = profiles.learn_live(self._db, learned.profile, learned.peak, learned.provisional)
        self._state.is_stale = True  # the estimates of waiting jobs have changed
        if not is_first:
            return
        for job in list(self._running.values()):
            is_live = job.request.is_auto and job.profile == learned.profile
            if is_live and job.request.memory is not None:
                memory = min(job.request.memory, budget(learned.peak))
                self._set_claim(job, memory)
                attempts.set_claim(self._db, job.attempt, memory)

    def _set_claim(self, job: RunningJob, memory: int) -> None:
        request = job.request._replace(memory=memory)
        self._running[job.attempt] = job._replace(request=request)
        self._state.may_start = True
