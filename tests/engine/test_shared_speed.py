"""Packing by throughput: as many jobs on a GPU as add to its speed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.engine.model import Device, DeviceState, Request, RunningJob, Snapshot, WaitingJob
from stoker.engine.policy.decide import decide
from stoker.engine.profiles.estimates import Estimates
from stoker.engine.profiles.shared_speed import (
    GAIN,
    gains,
    most_together,
    throughput_words,
    update_speed,
)

GIB = 1 << 30
SATURATING = {1: 613.0, 2: 288.0}
TRANSFORMER = {1: 53.7, 2: 54.0, 4: 43.5, 8: 22.0}
MLP = {1: 626.0, 2: 566.0, 4: 562.0, 8: 357.0}
AUTO = Request(1, memory=9 * GIB, is_auto=True, profile=7)

speeds = st.dictionaries(st.integers(1, 16), st.floats(0.01, 1000.0), max_size=8)


def test_jobs_of_the_measured_kinds_are_packed_as_far_as_they_gain() -> None:
    assert most_together(SATURATING) == 1
    assert most_together(TRANSFORMER) == 4
    assert most_together(MLP) is None
    assert not gains(SATURATING)
    assert gains(TRANSFORMER)


def test_nothing_is_limited_by_one_measurement() -> None:
    assert most_together({}) is None
    assert most_together({4: 10.0}) is None
    assert throughput_words({4: 10.0}) is None


@given(speeds)
def test_limit_is_the_least_number_that_no_larger_one_improves(known: dict[int, float]) -> None:
    limit = most_together(known)
    totals = {count: count * speed for count, speed in known.items()}
    if limit is not None:
        assert limit in known and limit < max(known)
        assert all(total < totals[limit] * (1 + GAIN) for n, total in totals.items() if n > limit)
    for count in sorted(known)[:-1]:
        if limit is None or count < limit:
            assert any(
                total >= totals[count] * (1 + GAIN) for n, total in totals.items() if n > count
            )


@given(st.lists(st.floats(0.1, 100.0), min_size=1, max_size=50))
def test_mean_speed_stays_between_the_measured_ones(measured: list[float]) -> None:
    mean = None
    for runs, speed in enumerate(measured):
        mean = update_speed(mean, runs, speed)
    assert mean is not None
    assert min(measured) * 0.999 <= mean <= max(measured) * 1.001


def _starts(
    known: dict[int, float],
    running: int,
    *,
    request: Request = AUTO,
    saturated: bool = False,
    profile: int = 7,
) -> int:
    jobs = tuple(
        RunningJob(n, n, AUTO._replace(profile=profile), (0,), 0.0, profile=profile)
        for n in range(1, running + 1)
    )
    snapshot = Snapshot(
        now=0.0,
        devices=(Device(0, "0", memory=139 * GIB),),
        cpu_slots=1,
        running=jobs,
        waiting=tuple(WaitingJob(100 + n, 0, request, profile=7) for n in range(16)),
        states={0: DeviceState(takes_followers=True, is_saturated=saturated)},
        estimates=Estimates({}, 0.0, {7: known}),
    )
    return len(decide(snapshot).starts)


def test_no_job_is_added_where_the_sum_no_longer_grows() -> None:
    assert _starts(TRANSFORMER, 0) == 4
    assert _starts(TRANSFORMER, 3) == 1
    assert _starts(TRANSFORMER, 4) == 0
    assert _starts(MLP, 4) == 11  # as memory allows
    assert _starts({}, 4) == 11


def test_declared_sizes_are_packed_by_memory_only() -> None:
    assert _starts(TRANSFORMER, 4, request=Request(1, 9 * GIB)) == 11


def test_saturated_gpu_takes_no_job_of_an_unknown_or_of_the_same_profile() -> None:
    unknown = AUTO._replace(memory=None)
    assert _starts({}, 1, request=unknown, saturated=True) == 0
    assert _starts({}, 1, saturated=True) == 0
    assert _starts(TRANSFORMER, 1, saturated=True) > 0
    # Another kind of job whose memory is known may still gain from it.
    assert _starts({}, 1, saturated=True, profile=8) > 0


def test_job_that_gains_nothing_does_not_block_others() -> None:
    jobs = tuple(RunningJob(n, n, AUTO, (0,), 0.0, profile=7) for n in range(1, 5))
    snapshot = Snapshot(
        now=0.0,
        devices=(Device(0, "0", memory=139 * GIB),),
        cpu_slots=1,
        running=jobs,
        waiting=(
            WaitingJob(100, 5, AUTO, profile=7),
            WaitingJob(101, 0, Request(1, 90 * GIB)),
        ),
        states={0: DeviceState()},
        estimates=Estimates({}, 0.0, {7: TRANSFORMER}),
    )
    plan = decide(snapshot)
    assert [start.job for start in plan.starts] == [101]
    assert plan.reservation is None
