"""What an ended attempt means for its job: which event, which cause, and whether to try again."""

from __future__ import annotations

from stoker.core.model import Outcome
from stoker.core.outcome.wait_status import exit_code_of, signal_of
from stoker.core.record import Record

# However often a restartable job is lost, it is not started for ever (Slurm stops at 5 as well).
RERUN_CAP = 5
BACKOFF_CAP_SECONDS = 300.0

# How often a job may be started anew because it ran out of GPU memory (`--on-oom`).
OOM_CAP = 3

# "Run me again": EX_TEMPFAIL, as a job exits that has saved its work. It counts where the job was
# submitted as restartable, or said `stoker.requeue()`; any other program may mean something else.
REQUEUE_CODE = 75
_PROGRESS_SECONDS = 10.0

# Trying again cannot mend these, wherever and however often.
DETERMINISTIC = frozenset({"missing_program", "missing_script", "missing_module"})  # of causes.py
_DETERMINISTIC = DETERMINISTIC | {"start_failed", "time_limit"}


class Verdict(Record):
    """`event` is a row of core.states; `delay` is set when the job goes back to the queue."""

    event: str
    cause: str
    exit_code: int | None
    signal: int | None
    delay: float | None = None


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
) -> Verdict:
    """Turn a wait status into an end of the job. `attempts` counts this one.

    `requeues` of them, before this one, ended because the job asked for another: those are no
    failures and use up no retries. `seconds` is how long this one took.
    """
    exit_code, signal = exit_code_of(outcome.status), signal_of(outcome.status)
    cause = _cause(outcome, exit_code, signal)
    if cause == "stopped_early":  # it was told to leave, however it did: that is the end of it
        return Verdict("cancel", cause, exit_code, signal)
    asks = cause == "requeue" or (cause == "exit" and exit_code == REQUEUE_CODE and restartable)
    if asks and not stop_requested:
        # One that works a while and asks again is making progress; one that asks at once may be in
        # a circle, and must not keep a GPU busy with that.
        delay = 0.0 if seconds >= _PROGRESS_SECONDS else backoff(requeues + 1, base_delay)
        return Verdict("return", "requeue", exit_code, None, delay)
    attempts -= requeues
    if cause == "exit" and exit_code == 0:
        return Verdict("succeed", cause, 0, None)
    if cause == "user" or stop_requested:
        return Verdict("cancel", "user", exit_code, signal)
    if cause == "lost":
        if restartable and attempts <= RERUN_CAP:
            return Verdict("return", cause, None, None, backoff(attempts, base_delay))
        return Verdict("lose", cause, None, None)
    if cause == "gpu_oom" and on_oom is not None:
        again = on_oom != "fail" and attempts <= OOM_CAP
    else:
        again = cause not in _DETERMINISTIC and attempts <= retries
    if again:
        return Verdict("return", cause, exit_code, signal, backoff(attempts, base_delay))
    return Verdict("fail", cause, exit_code, signal)


def give_up(verdict: Verdict) -> Verdict:
    """The end instead of another attempt: its sweep was stopped."""
    event = "cancel" if verdict.cause == "requeue" else "fail"
    return verdict._replace(event="lose" if verdict.cause == "lost" else event, delay=None)


def backoff(attempts: int, base_delay: float) -> float:
    """1, 2, 4, 8 ... times the base, capped: a broken job must not keep a GPU busy failing."""
    return float(min(BACKOFF_CAP_SECONDS, base_delay * 2 ** min(attempts - 1, 30)))


def _cause(outcome: Outcome, exit_code: int | None, signal: int | None) -> str:
    if outcome.reason is not None:
        return outcome.reason
    if exit_code is not None:
        return "exit"
    return "signal" if signal is not None else "lost"
