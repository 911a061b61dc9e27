"""The verdict on a finished attempt: event, cause, and whether the job is retried."""

from __future__ import annotations

from stoker.engine.model import Outcome
from stoker.engine.outcome.wait_status import exit_code_of, signal_of
from stoker.record import Record

# How many times a lost restartable job is started again at most. Slurm has the same limit.
MAX_LOST_RETRIES = 5
BACKOFF_CAP_SECONDS = 300.0

# How often a job is started again after it ran out of GPU memory (`--on-oom`).
OOM_CAP = 3

# How often a job is started again at least, after the MPS server of its GPU failed.
MPS_CAP = 3

# EX_TEMPFAIL: a job that saved its work exits with this code to be started again. It counts only
# for restartable jobs and after `stoker.requeue()`; other programs may use it for something else.
REQUEUE_CODE = 75
_PROGRESS_SECONDS = 10.0

# Causes from failure_causes.py that a retry cannot fix.
DETERMINISTIC = frozenset(
    {"missing_program", "missing_script", "missing_module", "environment_failed"}
)
_NOT_RETRIED = DETERMINISTIC | {"start_failed", "time_limit", "memory_limit"}


class Verdict(Record):
    """`event` is one of core.states.EVENTS; `delay` is set if the job returns to the queue."""

    event: str
    cause: str
    exit_code: int | None
    signal: int | None
    delay: float | None = None
    is_counted: bool = True  # whether the attempt counts for `--retries` and other limits


def judge(
    outcome: Outcome,
    *,
    attempts: int,
    retries: int,
    restartable: bool,
    stop_requested: bool,
    base_delay: float = 1.0,
    on_oom: str | None = None,
    requeues: int = 0,
    seconds: float = 0.0,
    preemptions: int = 0,
    was_asked: bool = False,
) -> Verdict:
    """Return the verdict on a finished attempt.

    `attempts` counts this attempt too. `requeues` is the number of earlier attempts that ended
    with a requeue: they are not failures and use no retries, and neither are `preemptions`, those
    that gave way to other jobs. `seconds` is the duration of this attempt, `was_asked` whether it
    was asked to give way.
    """
    exit_code, signal = exit_code_of(outcome.status), signal_of(outcome.status)
    cause = _cause(outcome, exit_code, signal)
    if cause == "stopped_early":  # the sweep asked it to stop: its exit code does not matter
        return Verdict("cancel", cause, exit_code, signal)
    is_requeue = cause == "requeue" or (
        cause == "exit" and exit_code == REQUEUE_CODE and restartable
    )
    if is_requeue and not stop_requested:
        # A job that ran for a while makes progress. One that requeues at once may do so forever,
        # so it waits longer each time.
        delay = 0.0 if seconds >= _PROGRESS_SECONDS else backoff(requeues + 1, base_delay)
        return Verdict("return", "requeue", exit_code, None, delay, is_counted=False)
    if not stop_requested and (cause == "crowded" or (cause == "gpu_oom" and outcome.was_crowded)):
        # It shared its GPU because of an estimate, so that is not a failure of the job.
        return Verdict("return", cause, exit_code, signal, 0.0, is_counted=False)
    if cause == "preempted" and was_asked and not stop_requested:
        # Whatever its exit code is: many programs save their work and exit with 0.
        return Verdict("return", cause, exit_code, signal, 0.0)
    attempts -= requeues + preemptions
    if cause == "exit" and exit_code == 0:
        return Verdict("succeed", cause, 0, None)
    if cause == "user" or stop_requested:
        return Verdict("cancel", "user", exit_code, signal)
    if cause == "engine_cancel":
        return Verdict("cancel", cause, exit_code, signal)
    if cause in ("lost", "preempted"):
        if restartable and attempts <= MAX_LOST_RETRIES:
            return Verdict("return", cause, None, None, backoff(attempts, base_delay))
        if cause == "lost":
            return Verdict("lose", cause, None, None)
    if cause == "gpu_oom" and on_oom is not None:
        is_retried = on_oom != "fail" and attempts <= OOM_CAP and not outcome.exceeds_gpus
    elif cause == "mps_failed":  # not a fault of the job
        is_retried = attempts <= max(retries, MPS_CAP)
    else:
        is_retried = cause not in _NOT_RETRIED and attempts <= retries
    if is_retried:
        return Verdict("return", cause, exit_code, signal, backoff(attempts, base_delay))
    return Verdict("fail", cause, exit_code, signal)


def without_retry(verdict: Verdict) -> Verdict:
    """Return the final verdict instead of a retry, because the sweep was stopped."""
    event = "cancel" if verdict.cause in ("requeue", "crowded", "preempted") else "fail"
    return verdict._replace(event="lose" if verdict.cause == "lost" else event, delay=None)


def backoff(attempts: int, base_delay: float) -> float:
    """Return exponential backoff in seconds: base_delay times 1, 2, 4, 8 ..., with a cap."""
    return float(min(BACKOFF_CAP_SECONDS, base_delay * 2 ** min(attempts - 1, 30)))


def _cause(outcome: Outcome, exit_code: int | None, signal: int | None) -> str:
    if outcome.reason is not None:
        return outcome.reason
    if exit_code is not None:
        return "exit"
    return "signal" if signal is not None else "lost"
