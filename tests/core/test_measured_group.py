"""Leaders and followers on one GPU."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.core.gpus.measured_group import (
    MAX_MEMBERS,
    MAX_PAUSE_SECONDS,
    GroupStep,
    Member,
    advance_group,
)
from stoker.core.model import Device, DeviceState, Request, RunningJob, Snapshot, WaitingJob
from stoker.core.policy.decide import decide
from stoker.core.profiles.gpu_memory import budget
from stoker.core.profiles.live_memory import LiveEstimate

GIB = 1 << 30
AUTO = Request(1, is_auto=True, profile=7)

members = st.builds(
    Member,
    attempt=st.integers(1, 20),
    seen_at=st.none() | st.floats(0, 100),
    used=st.integers(0, 20 * GIB),
    paused_since=st.none() | st.floats(0, 100),
    is_released=st.booleans(),
    is_stopping=st.booleans(),
)
groups = st.lists(members, min_size=1, max_size=MAX_MEMBERS, unique_by=lambda one: one.attempt)
estimates = st.none() | st.builds(LiveEstimate, st.integers(1, 80 * GIB), st.booleans())


def test_first_job_on_the_gpu_leads_and_the_others_are_paused() -> None:
    group = [Member(1), Member(2, seen_at=5.0, used=GIB), Member(3, seen_at=6.0, used=GIB)]
    step = advance_group(group, None, 80 * GIB, 6.0)
    assert step == GroupStep(leader=2, pause=(3,))


def test_followers_that_fit_continue() -> None:
    group = [Member(1, seen_at=1.0), Member(2, seen_at=2.0, paused_since=2.0), Member(3)]
    step = advance_group(group, LiveEstimate(8 * GIB, False), 80 * GIB, 5.0)
    assert step == GroupStep(leader=1, release=(2, 3), is_resolved=True)


def test_followers_that_do_not_fit_wait_for_the_final_estimate() -> None:
    group = [Member(n, seen_at=float(n), paused_since=None if n == 1 else 2.0) for n in (1, 2, 3)]
    step = advance_group(group, LiveEstimate(20 * GIB, False), 80 * GIB, 5.0)
    assert step == GroupStep(leader=1, release=(2,))
    step = advance_group(group, LiveEstimate(30 * GIB, True), 80 * GIB, 15.0)
    assert step == GroupStep(leader=1, release=(2,), requeue=(3,), is_resolved=True)


def test_pause_ends_after_a_minute() -> None:
    group = [Member(1, seen_at=1.0), Member(2, seen_at=2.0, paused_since=2.0)]
    step = advance_group(group, None, 80 * GIB, 2.5 + MAX_PAUSE_SECONDS)
    assert step.requeue == (2,)


def test_youngest_follower_leaves_a_full_gpu() -> None:
    group = [Member(n, seen_at=float(n), paused_since=None if n == 1 else 2.0) for n in (1, 2, 3)]
    assert advance_group(group, None, 80 * GIB, 5.0, is_full=True).requeue == (3,)


def test_no_follower_continues_beside_a_leader_that_saturates_the_gpu() -> None:
    group = [Member(1, seen_at=1.0), Member(2, seen_at=2.0, paused_since=2.0)]
    step = advance_group(group, LiveEstimate(GIB, False), 80 * GIB, 5.0, is_saturated=True)
    assert (step.requeue, step.is_resolved) == ((2,), True)


@given(groups, estimates, st.integers(0, 140 * GIB), st.floats(100, 300), st.booleans())
def test_steps_are_consistent(
    group: list[Member], estimate: LiveEstimate | None, room: int, now: float, is_full: bool
) -> None:
    step = advance_group(group, estimate, room, now, is_full=is_full)
    by_id = {one.attempt: one for one in group}
    sets = [set(step.pause), set(step.release), set(step.requeue)]
    assert sum(map(len, sets)) == len(set.union(*sets))
    assert all(not by_id[attempt].is_stopping for attempt in set.union(*sets))
    assert step.leader not in step.pause and step.leader not in step.requeue
    live = [one for one in group if not one.is_stopping]
    if step.leader is None:
        assert not any(sets)
        return
    assert by_id[step.leader].paused_since is None or step.leader in step.release
    # After the step, every member that uses the GPU is the leader, paused, leaving or released.
    for one in live:
        is_held = one.paused_since is not None or one.attempt in step.pause
        is_free = one.is_released or one.attempt in (*step.release, step.leader)
        assert one.seen_at is None or is_held or is_free or one.attempt in step.requeue
    if estimate is None:
        assert not set(step.release) - {step.leader}
    elif step.is_resolved:
        stay = [one for one in live if one.attempt not in step.requeue]
        fresh = [one for one in stay if not one.is_released and one.attempt != step.leader]
        assert (
            not fresh or len(stay) * estimate.claim <= room or any(one.is_released for one in stay)
        )


def _snapshot(
    waiting: int, running: int = 0, *, takes: bool = True, gpus: int = 1, request: Request = AUTO
) -> Snapshot:
    devices = tuple(Device(n, str(n), memory=80 * GIB) for n in range(gpus))
    return Snapshot(
        now=0.0,
        devices=devices,
        cpu_slots=1,
        running=tuple(RunningJob(n + 1, n + 1, AUTO, (0,), 0.0, profile=7) for n in range(running)),
        waiting=tuple(WaitingJob(100 + n, 0, request, profile=7) for n in range(waiting)),
        states={device.number: DeviceState(takes_followers=takes) for device in devices},
    )


def test_followers_start_with_their_leader() -> None:
    assert len(decide(_snapshot(16)).starts) == MAX_MEMBERS
    assert len(decide(_snapshot(16, running=3)).starts) == MAX_MEMBERS - 3
    assert not decide(_snapshot(16, running=MAX_MEMBERS)).starts


def test_followers_are_spread_over_gpus() -> None:
    starts = decide(_snapshot(8, gpus=2)).starts
    assert sorted(start.devices for start in starts) == [(0,)] * 4 + [(1,)] * 4


def test_no_follower_starts_where_memory_cannot_be_measured() -> None:
    assert len(decide(_snapshot(8, takes=False)).starts) == 1


def test_only_jobs_of_the_same_profile_follow() -> None:
    for other in (AUTO._replace(profile=8), Request(1), Request(1, GIB)):
        assert not decide(_snapshot(2, running=1, request=other)).starts


def test_no_follower_joins_a_gpu_that_is_reserved_for_another_job() -> None:
    snapshot = _snapshot(2, running=1)
    whole = WaitingJob(50, 9, Request(1))
    plan = decide(snapshot._replace(waiting=(whole, *snapshot.waiting)))
    assert not plan.starts
    assert plan.reservation is not None and plan.reservation.job == 50


def test_margin_of_an_estimate_does_not_exclude_the_gpu_it_was_measured_on() -> None:
    request = AUTO._replace(memory=budget(78 * GIB))
    assert len(decide(_snapshot(2, request=request)).starts) == 1
    assert not decide(_snapshot(1, request=Request(1, budget(78 * GIB)))).starts
