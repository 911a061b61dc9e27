"""The verdict on an ended attempt, and its record for attempts on backends."""

from __future__ import annotations

from stoker.engine.daemon.gpus.fixed_gpus import FixedGpus
from stoker.engine.daemon.gpus.gpu_usage import GpuUse
from stoker.engine.daemon.profile_updates import EndedAttempt, learn
from stoker.engine.model import Outcome
from stoker.engine.outcome.retry import Verdict, judge
from stoker.engine.store import attempts, ready_jobs
from stoker.engine.store.database import Database
from stoker.features import TRIAL_ENDS, load
from stoker.settings import Settings


def judge_attempt(
    db: Database,
    settings: Settings,
    outcome: Outcome,
    job: attempts.JobToJudge,
    started_at: float | None,
) -> Verdict:
    """Decide what becomes of the job."""
    verdict = judge(
        outcome,
        attempts=job.attempts,
        retries=job.settings.retries,
        restartable=job.settings.restartable,
        stop_requested=job.stop_requested,
        base_delay=settings.retry_delay,
        on_oom=job.settings.on_oom,
        requeues=job.requeues,
        preemptions=job.preemptions,
        was_asked=job.asked_for is not None,
        seconds=outcome.ended_at - (started_at or outcome.ended_at),
    )
    if job.sweep is not None:
        for row in TRIAL_ENDS.values():
            verdict = load(row).judge(db, job, verdict)
    return verdict


def finish_attempt(
    db: Database,
    settings: Settings,
    outcome: Outcome,
    use: GpuUse,
    now: float,
    started: float | None = None,
) -> None:
    """Record the end of an attempt that did not run on this host, unless it is recorded already.

    `started`: when it started, if that is not recorded yet.
    """
    job = attempts.load_job_to_judge(db, outcome.attempt)
    if job is None:
        return
    started_at = job.started_at if started is None else started
    verdict = judge_attempt(db, settings, outcome, job, started_at)
    attempts.finish(db, job, outcome, verdict, now, started)
    group = ready_jobs.load_group(db, job.request_group)
    ended = EndedAttempt(job=job, outcome=outcome, verdict=verdict, use=use, started_at=started_at)
    learn(db, FixedGpus(()), group, ended)
