"""Recording of runner events: starts, ends, refused starts. Inside the transaction of a tick."""

from __future__ import annotations

from stoker.engine.daemon.diagnose import Diagnosis
from stoker.engine.daemon.finish_attempt import judge_attempt
from stoker.engine.daemon.gpus.gpus import Gpus
from stoker.engine.daemon.interfaces import Clock, EventListener, OrderHook
from stoker.engine.daemon.loop_state import LoopState
from stoker.engine.daemon.profile_updates import EndedAttempt, learn
from stoker.engine.daemon.waiting_jobs import WaitingJobs
from stoker.engine.model import MPS, Outcome, RunningJob
from stoker.engine.outcome.retry import Verdict
from stoker.engine.store import attempts, events, machines, meta, profiles
from stoker.engine.store.database import Database
from stoker.engine.store.events import STOPPED_LEFTOVERS
from stoker.engine.store.profiles import Profiles
from stoker.engine.supervisor.messages import AttemptStarted, Refused, RunnerEvent, Stuck
from stoker.record import Record
from stoker.settings import Settings
from stoker.testing.failpoints import failpoint


class Finished(Record):
    """An attempt whose end was recorded."""

    job: int
    outcome: Outcome
    verdict: Verdict
    is_trial: bool


class EventRecorder:
    def __init__(
        self,
        db: Database,
        state: LoopState,
        *,
        waiting: WaitingJobs,
        profiles: Profiles,
        gpus: Gpus,
        diagnosis: Diagnosis,
        settings: Settings,
        clock: Clock,
        listener: EventListener,
        order_hooks: list[OrderHook],
    ) -> None:
        self._db = db
        self._state = state
        self._waiting = waiting
        self._profiles = profiles
        self._gpus = gpus
        self._diagnosis = diagnosis
        self._settings = settings
        self._clock = clock
        self._listener = listener
        self._order_hooks = order_hooks
        self._refusal = meta.refusal(db)  # why the host refuses to start processes

    def record(
        self, unrecorded: list[RunnerEvent], running: dict[int, RunningJob]
    ) -> list[Finished]:
        """Record events in their order; returns the attempts that they finished."""
        ended = {event.attempt for event in unrecorded if isinstance(event, Outcome)}
        started: dict[int, float] = {}
        finished = []
        for event in unrecorded:
            if isinstance(event, AttemptStarted):
                self._set_refusal(None)
                started[event.attempt] = event.at
                self._state.refusals = 0
                if event.attempt not in ended:
                    attempts.record_start(
                        self._db,
                        event.attempt,
                        event.pid,
                        event.at,
                        event.mono,
                        event.pid_started,
                    )
                for hook in self._order_hooks:
                    hook.started(event)
                if event.code_note:
                    self._record_changed_code(event)
                if event.python:
                    machines.set_python(self._db, event.attempt, event.python)
                if event.note is not None:
                    self._record_cold_start(event)
            elif isinstance(event, Outcome):
                failpoint("daemon.before_finish")
                end = self._finish(event, started.get(event.attempt))
                if end is not None:
                    finished.append(end)
            elif isinstance(event, Refused):
                self._unclaim(event)
            else:
                self._record_stuck(event, running)
        return finished

    def _finish(self, outcome: Outcome, started: float | None) -> Finished | None:
        job = attempts.load_job_to_judge(self._db, outcome.attempt)
        if job is None:
            return None  # recorded before a crash
        use = self._gpus.take_use(outcome.attempt)
        largest = max((device.memory for device in self._gpus.devices), default=0)
        outcome = self._diagnosis.add_cause(outcome, job, use, largest)
        if use.was_crowded and not outcome.exceeds_gpus:
            outcome = outcome._replace(was_crowded=True)
        started_at = job.started_at if started is None else started
        if job.share == MPS and _may_be_of_mps(outcome, job):
            outcome = self._with_server_death(outcome, job.devices, started_at or 0.0)
        verdict = judge_attempt(self._db, self._settings, outcome, job, started_at)
        if verdict.cause == "preempted" and job.asked_for is not None:
            outcome = outcome._replace(detail=f"gave way to {job.asked_for}")
        if attempts.finish(self._db, job, outcome, verdict, self._clock.wall(), started):
            self._state.is_stale = True
        if outcome.leftovers:
            events.record_event(
                self._db, job.job, outcome.ended_at, STOPPED_LEFTOVERS, outcome.leftovers
            )
        group = self._waiting.group(job.request_group)
        ended = EndedAttempt(
            job=job, outcome=outcome, verdict=verdict, use=use, started_at=started_at
        )
        if learn(self._db, self._gpus, group, ended):
            self._state.is_stale = True
        if outcome.modules:
            profiles.learn_modules(self._db, job.profile, outcome.modules)
        if verdict.event == "succeed" and use.memory is not None:
            self._gpus.memory_learned(job.profile, use.memory)
        self._profiles.changed(job.profile)
        return Finished(job.job, outcome, verdict, job.sweep is not None)

    def _with_server_death(
        self, outcome: Outcome, devices: tuple[int, ...], started: float
    ) -> Outcome:
        """The outcome of a job under MPS, with its cause if its server died meanwhile."""
        for device in self._gpus.devices:
            if device.number in devices:
                death = self._gpus.servers.death_since(device.uuid, started)
                if death is not None:
                    return outcome._replace(reason="mps_failed", detail=death)
        return outcome

    def _record_cold_start(self, event: AttemptStarted) -> None:
        """Record why a job with --warm started cold, once for each attempt."""
        job = attempts.load_job_to_judge(self._db, event.attempt)
        if job is not None:
            events.record_event(self._db, job.job, event.at, "cold_start", event.note)

    def _record_changed_code(self, event: AttemptStarted) -> None:
        """Record that the code of a job has changed since its submit, once for each attempt."""
        job = attempts.load_job_to_judge(self._db, event.attempt)
        if job is not None:
            text = event.code_note.removeprefix("the code has changed since submit: ")
            events.record_event(self._db, job.job, event.at, "code_changed", text)
            self._listener.code_changed(job.job, text)

    def _record_stuck(self, stuck: Stuck, running: dict[int, RunningJob]) -> None:
        """Record why a job cannot be killed; it keeps its devices."""
        job = running.get(stuck.attempt)
        if job is not None:
            events.record_event(self._db, job.id, self._clock.wall(), "stuck", stuck.why)
            self._listener.message(f"job {job.id}: {stuck.why}")

    def _unclaim(self, refused: Refused) -> None:
        """The host could not start a process: return the job to the queue, and pause starts."""
        self._state.start_was_refused(self._clock.mono())
        attempts.unclaim(self._db, refused.attempt, self._clock.wall(), refused.why)
        self._set_refusal(refused.why)
        self._state.is_stale = True
        self._listener.message(f"could not start a job: {refused.why}")

    def _set_refusal(self, why: str | None) -> None:
        """Record why starts are refused, or None, for `stoker why`."""
        if why != self._refusal:
            meta.set_refusal(self._db, why)
            self._refusal = why


def _may_be_of_mps(outcome: Outcome, job: attempts.JobToJudge) -> bool:
    """Whether an attempt failed without a cause of its own: then its MPS server may have died."""
    is_failure = bool(outcome.status) and not job.stop_requested
    return is_failure and outcome.reason in (None, "gpu_error")
