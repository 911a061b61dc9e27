"""Verdicts on finished attempts."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.engine.model import Outcome
from stoker.engine.outcome.retry import (
    BACKOFF_CAP_SECONDS,
    MAX_LOST_RETRIES,
    Verdict,
    backoff,
    judge,
)
from stoker.states import ACTIVE, TABLE

REASONS = ("user", "time_limit", "start_failed", "lost", "gpu_oom", "host_oom")
STATUSES = st.none() | st.integers(0, 255).map(lambda code: code << 8) | st.integers(1, 64)


def an_outcome(
    *,
    exit_code: int | None = None,
    by_signal: int | None = None,
    dumped: bool = False,
    reason: str | None = None,
) -> Outcome:
    status = None
    if exit_code is not None:
        status = exit_code << 8
    if by_signal is not None:
        status = by_signal | (0x80 if dumped else 0)
    return Outcome(attempt=1, status=status, ended_at=0.0, reason=reason)


def verdict(
    outcome: Outcome,
    attempts: int = 1,
    retries: int = 0,
    restartable: bool = False,
    stop_requested: bool = False,
) -> Verdict:
    return judge(
        outcome,
        attempts=attempts,
        retries=retries,
        restartable=restartable,
        stop_requested=stop_requested,
    )


# -- causes ------------------------------------------------------------------------------------


def test_exit_code_zero_is_success() -> None:
    assert verdict(an_outcome(exit_code=0)) == Verdict("succeed", "exit", 0, None)


@pytest.mark.parametrize("code", [1, 2, 127, 255])
def test_other_exit_codes_fail_and_are_kept(code: int) -> None:
    assert verdict(an_outcome(exit_code=code)) == Verdict("fail", "exit", code, None)


@pytest.mark.parametrize("dumped", [False, True])
def test_signal_fails_and_is_kept_core_dump_or_not(dumped: bool) -> None:
    outcome = an_outcome(by_signal=signal.SIGSEGV, dumped=dumped)
    assert verdict(outcome) == Verdict("fail", "signal", None, signal.SIGSEGV)


def test_missing_status_is_lost() -> None:
    assert verdict(an_outcome()) == Verdict("lose", "lost", None, None)


def test_time_limit_fails_whatever_the_status() -> None:
    killed = an_outcome(by_signal=signal.SIGKILL, reason="time_limit")
    polite = an_outcome(exit_code=0, reason="time_limit")
    assert verdict(killed) == Verdict("fail", "time_limit", None, signal.SIGKILL)
    assert verdict(polite) == Verdict("fail", "time_limit", 0, None)


def test_failed_start_has_no_exit_code() -> None:
    assert verdict(an_outcome(reason="start_failed")) == Verdict("fail", "start_failed", None, None)


def test_job_cancelled_by_the_user_is_cancelled_even_with_exit_code_zero() -> None:
    outcome = an_outcome(exit_code=0, reason="user")
    assert verdict(outcome) == Verdict("cancel", "user", 0, None)


@pytest.mark.parametrize("reason", ["gpu_oom", "host_oom"])
def test_memory_is_a_cause_of_its_own_and_may_be_retried(reason: str) -> None:
    outcome = an_outcome(by_signal=signal.SIGKILL, reason=reason)
    assert verdict(outcome) == Verdict("fail", reason, None, signal.SIGKILL)
    assert verdict(outcome, retries=1) == Verdict("return", reason, None, signal.SIGKILL, 1.0)


# -- retries -----------------------------------------------------------------------------------


def test_failed_job_goes_back_while_retries_are_left() -> None:
    outcome = an_outcome(exit_code=3)
    events = [verdict(outcome, attempts=n, retries=2).event for n in (1, 2, 3)]
    assert events == ["return", "return", "fail"]


def test_success_needs_no_retry() -> None:
    assert verdict(an_outcome(exit_code=0), retries=5).event == "succeed"


@pytest.mark.parametrize("reason", ["start_failed", "time_limit"])
def test_deterministic_failures_are_not_retried(reason: str) -> None:
    assert verdict(an_outcome(reason=reason), retries=5).event == "fail"


def test_lost_job_does_not_run_twice_unless_it_was_declared_restartable() -> None:
    assert verdict(an_outcome(), retries=5).event == "lose"
    assert verdict(an_outcome(), restartable=True) == Verdict("return", "lost", None, None, 1.0)


def test_restartable_job_has_a_limit_of_restarts() -> None:
    assert verdict(an_outcome(), attempts=MAX_LOST_RETRIES, restartable=True).event == "return"
    assert verdict(an_outcome(), attempts=MAX_LOST_RETRIES + 1, restartable=True).event == "lose"


def test_restartable_alone_does_not_retry_a_failure() -> None:
    assert verdict(an_outcome(exit_code=1), restartable=True).event == "fail"


# -- stop_requested ----------------------------------------------------------------------------


def test_job_that_succeeds_before_the_stop_arrives_is_done() -> None:
    assert verdict(an_outcome(exit_code=0), stop_requested=True).event == "succeed"


@pytest.mark.parametrize(
    "outcome",
    [
        an_outcome(exit_code=1),
        an_outcome(by_signal=signal.SIGTERM),
        an_outcome(),
        *(an_outcome(by_signal=signal.SIGKILL, reason=reason) for reason in REASONS),
    ],
    ids=["exit", "signal", "no status", *REASONS],
)
def test_job_with_a_stop_request_is_never_retried(outcome: Outcome) -> None:
    found = verdict(outcome, retries=5, restartable=True, stop_requested=True)
    assert (found.event, found.cause, found.delay) == ("cancel", "user", None)


# -- back-off ----------------------------------------------------------------------------------


def test_backoff_doubles_up_to_its_cap() -> None:
    assert [backoff(n, 1.0) for n in range(1, 6)] == [1, 2, 4, 8, 16]
    assert backoff(20, 1.0) == backoff(10**9, 1.0) == BACKOFF_CAP_SECONDS


def test_backoff_with_base_zero_is_zero() -> None:
    assert backoff(1, 0.0) == backoff(50, 0.0) == 0.0


@given(st.integers(1, 1000), st.floats(0, 1000))
def test_backoff_never_shrinks_or_exceeds_its_cap(attempts: int, base: float) -> None:
    assert 0 <= backoff(attempts, base) <= backoff(attempts + 1, base) <= BACKOFF_CAP_SECONDS


# -- always ------------------------------------------------------------------------------------


@given(
    STATUSES,
    st.none() | st.sampled_from(REASONS),
    st.integers(1, 10),
    st.integers(0, 10),
    st.booleans(),
    st.booleans(),
)
def test_verdict_is_a_legal_transition_and_has_a_delay_only_for_a_retry(
    status: int | None,
    reason: str | None,
    attempts: int,
    retries: int,
    restartable: bool,
    stop_requested: bool,
) -> None:
    outcome = Outcome(1, status, 0.0, reason)
    found = verdict(outcome, attempts, retries, restartable, stop_requested)
    assert all(found.event in TABLE[state] for state in ACTIVE)
    assert (found.delay is not None) == (found.event == "return")
    assert found.exit_code is None or found.signal is None
    if found.event == "return":
        assert attempts <= max(retries, MAX_LOST_RETRIES) and not stop_requested


# -- requeue -----------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["crowded", "gpu_oom"])
def test_job_that_had_to_leave_a_shared_gpu_runs_again_without_using_retries(reason: str) -> None:
    outcome = Outcome(attempt=1, status=1 << 8, ended_at=0.0, reason=reason, was_crowded=True)
    found = judge(outcome, attempts=1, retries=0, restartable=False, stop_requested=False)
    assert (found.event, found.cause, found.delay) == ("return", reason, 0.0)
    assert not found.is_counted
    stopped = judge(outcome, attempts=1, retries=0, restartable=False, stop_requested=True)
    assert (stopped.event, stopped.cause) == ("cancel", "user")


def test_requeued_job_runs_again_without_using_retries() -> None:
    outcome = an_outcome(exit_code=75, reason="requeue")
    assert verdict(outcome) == Verdict("return", "requeue", 75, None, 1.0, False)
    failed = an_outcome(exit_code=1)
    again = judge(
        failed, attempts=4, retries=1, restartable=False, stop_requested=False, requeues=3
    )
    assert again.event == "return"


def test_exit_code_75_means_nothing_special_unless_the_job_is_restartable() -> None:
    assert verdict(an_outcome(exit_code=75)).event == "fail"
    assert verdict(an_outcome(exit_code=75), restartable=True).event == "return"


def test_cancelled_job_is_not_requeued() -> None:
    outcome = an_outcome(exit_code=75, reason="requeue")
    assert verdict(outcome, stop_requested=True).event == "cancel"


def test_requeue_without_progress_backs_off() -> None:
    outcome = an_outcome(exit_code=75, reason="requeue")

    def delay(requeues: int, seconds: float) -> float | None:
        return judge(
            outcome, attempts=requeues + 1, retries=0, restartable=False, stop_requested=False,
            requeues=requeues, seconds=seconds,
        ).delay  # fmt: skip

    assert [delay(n, 0.5) for n in (0, 1, 2, 30)] == [1.0, 2.0, 4.0, BACKOFF_CAP_SECONDS]
    assert delay(5, 3600.0) == 0.0
