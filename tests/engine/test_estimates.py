"""Estimates of durations, and when they are used for backfill."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.engine.model import Request, RunningJob, Snapshot, WaitingJob
from stoker.engine.policy.decide import RESERVED, decide
from stoker.engine.profiles.estimates import Estimate, Estimates, update_estimate
from tests.engine.scenario import a_device


def after(*seconds: float) -> Estimate:
    known = None
    for one in seconds:
        known = update_estimate(known, one)
    assert known is not None
    return known


def test_profile_with_equal_durations_estimates_them() -> None:
    known = after(60.0, 60.0, 60.0)
    assert abs(known.seconds - 60.0) < 1e-6 and known.runs == 3
    assert known.is_steady


def test_one_very_long_attempt_does_not_make_all_later_ones_look_long() -> None:
    assert after(*[60.0] * 9, 86400.0).seconds < 150.0


def test_bound_of_few_attempts_is_wider_than_that_of_many() -> None:
    few, many = after(60.0).bound, after(*[60.0] * 20).bound
    assert few is not None and many is not None
    assert few > 200.0 > 100.0 > many > 60.0


def test_durations_that_vary_widely_have_no_bound() -> None:
    assert after(1.0, 90.0, 1.0, 90.0).bound is None


def test_differences_below_a_second_do_not_count() -> None:
    assert after(0.05, 0.4, 0.02).is_steady


def test_job_with_unsteady_durations_does_not_run_ahead_of_a_reservation() -> None:
    """An optimistic estimate must not delay the job that waits for two GPUs."""
    running = RunningJob(1, 1, Request(1), (0,), 0.0, ends_by=600.0)
    wide = WaitingJob(2, 0, Request(2))
    narrow = WaitingJob(3, 0, Request(1), profile=7)
    seen = Snapshot(
        0.0, (a_device(0), a_device(1)), 4, (running,), (wide, narrow),
        estimates=Estimates({7: after(1.0, 90.0, 1.0, 90.0)}),
    )  # fmt: skip
    assert decide(seen).waits[3] == RESERVED
    steady = seen._replace(estimates=Estimates({7: after(*[20.0] * 4)}))
    assert [start.job for start in decide(steady).starts] == [3]


def test_new_estimate_applies_to_running_jobs() -> None:
    running = RunningJob(1, 1, Request(1), (0,), 0.0, profile=7)
    wide = WaitingJob(2, 0, Request(2))
    seen = Snapshot(10.0, (a_device(0), a_device(1)), 4, (running,), (wide,))
    unknown = decide(seen).reservation
    assert unknown is not None and unknown.at is None
    known = decide(seen._replace(estimates=Estimates({7: Estimate(60.0)}))).reservation
    assert known is not None and known.at == 60.0


@given(st.lists(st.just(0.0) | st.floats(1e-6, 1e7), min_size=1, max_size=30))
def test_estimate_lies_between_the_shortest_and_the_longest_attempt(seconds: list[float]) -> None:
    known = after(*seconds)
    assert min(seconds) * 0.999 <= known.seconds <= max(1.0, *seconds) * 1.001
    assert known.spread >= 0.0 and known.runs == len(seconds)
    assert known.bound is None or known.bound >= known.seconds
