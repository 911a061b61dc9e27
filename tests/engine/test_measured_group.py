"""Leaders and followers on one GPU."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.engine.gpus.measured_group import (
    MAX_MEMBERS,
    MAX_PAUSE_SECONDS,
    GroupStep,
    Member,
    advance_group,
)
from stoker.engine.model import Device, DeviceState, Request, RunningJob, Snapshot, WaitingJob
from stoker.engine.policy.decide import decide
from stoker.engine.profiles.gpu_memory import budget
from stoker.engine.profiles.live_memory import LiveEstimate

GIB = 1 << 30
AUTO = Request(1, is_auto=True, profile=7)

members = st.builds(
    Member,
    attempt=st.integers(1, 20),
    profile=st.integers(1, 3),
    seen_at=st.none() | st.floats(0, 100),
    used=st.integers(0, 20 * GIB),
    paused_since=st.none() | st.floats(0, 100),
    is_released=st.booleans(),
    is_stopping=st.booleans(),
)
groups = st.lists(members, min_size=1, max_size=MAX_MEMBERS, unique_by=lambda one: one.attempt)
estimates = st.dictionaries(
    st.integers(1, 3), st.builds(LiveEstimate, st.integers(1, 80 * GIB), st.booleans())
)


def _step(
    members: list[Member],
    known: dict[int, LiveEstimate],
    now: float,
    *,
    is_full: bool = False,
    is_saturated: bool = False,
) -> GroupStep:
    return advance_group(
        members, known, 80 * GIB, 80 * GIB, now, is_full=is_full, is_saturated=is_saturated
    )


def _three() -> list[Member]:
    """A leader and two followers that are paused, all of profile 7."""
    return [Member(n, 7, float(n), paused_since=None if n == 1 else 2.0) for n in (1, 2, 3)]


def test_first_job_on_the_gpu_leads_and_the_others_are_paused() -> None:
    group = [Member(1, 7), Member(2, 7, 5.0, GIB), Member(3, 7, 6.0, GIB), Member(4, 8, 6.0, GIB)]
    assert _step(group, {}, 6.0) == GroupStep(leader=2, pause=(3, 4))


def test_followers_that_fit_continue() -> None:
    group = [Member(1, 7, 1.0), Member(2, 7, 2.0, paused_since=2.0), Member(3, 7)]
    step = _step(group, {7: LiveEstimate(8 * GIB, False)}, 5.0)
    assert step == GroupStep(leader=1, release=(2, 3), resolved=(7,))


def test_followers_that_do_not_fit_wait_for_the_final_estimate() -> None:
    step = _step(_three(), {7: LiveEstimate(20 * GIB, False)}, 5.0)
    assert step == GroupStep(leader=1, release=(2,))
    step = _step(_three(), {7: LiveEstimate(30 * GIB, True)}, 15.0)
    assert step == GroupStep(leader=1, release=(2,), requeue=(3,), resolved=(7,))


def test_job_of_the_next_profile_leads_when_the_first_profile_is_known() -> None:
    others = [Member(4, 8, 3.0, paused_since=3.0), Member(5, 8, 4.0, paused_since=4.0)]
    step = _step([*_three(), *others], {7: LiveEstimate(5 * GIB, False)}, 5.0)
    assert step == GroupStep(leader=4, release=(1, 2, 3, 4), resolved=(7,))


def test_job_of_the_next_profile_waits_until_half_of_the_gpu_is_free() -> None:
    other = Member(4, 8, 3.0, paused_since=3.0)
    step = _step([*_three(), other], {7: LiveEstimate(10 * GIB, False)}, 5.0)
    assert step == GroupStep(leader=1, release=(2, 3), resolved=(7,))


def test_pause_ends_after_a_minute() -> None:
    group = [Member(1, 7, 1.0), Member(2, 8, 2.0, paused_since=2.0)]
    assert _step(group, {}, 2.5 + MAX_PAUSE_SECONDS).requeue == (2,)


def test_youngest_follower_leaves_a_full_gpu() -> None:
    assert _step(_three(), {}, 5.0, is_full=True).requeue == (3,)


def test_no_follower_continues_beside_a_leader_that_saturates_the_gpu() -> None:
    group = [*_three(), Member(4, 8, 3.0, paused_since=3.0)]
    step = _step(group, {7: LiveEstimate(GIB, False)}, 5.0, is_saturated=True)
    assert (step.requeue, step.resolved) == ((2, 3, 4), (7,))


@given(
    groups, estimates, st.integers(0, 140 * GIB), st.floats(100, 300), st.booleans(), st.booleans()
)
def test_steps_are_consistent(
    group: list[Member],
    known: dict[int, LiveEstimate],
    room: int,
    now: float,
    is_full: bool,
    is_saturated: bool,
) -> None:
    step = advance_group(
        group, known, room, 140 * GIB, now, is_full=is_full, is_saturated=is_saturated
    )
    by_id = {one.attempt: one for one in group}
    sets = [set(step.pause), set(step.release), set(step.requeue)]
    assert sum(map(len, sets)) == len(set.union(*sets))
    assert all(not by_id[attempt].is_stopping for attempt in set.union(*sets))
    assert step.leader not in step.pause and step.leader not in step.requeue
    assert set(step.resolved) <= known.keys()
    live = [one for one in group if not one.is_stopping]
    if step.leader is None:
        assert not any(sets)
        return
    leader = by_id[step.leader]
    assert leader.paused_since is None or step.leader in step.release
    # After the step, every member that uses the GPU is the leader, paused, leaving or released.
    runs = set()
    for one in live:
        is_held = one.paused_since is not None or one.attempt in step.pause
        is_free = one.is_released or one.attempt in (*step.release, step.leader)
        assert one.seen_at is None or is_held or is_free or one.attempt in step.requeue
        if is_free and one.attempt not in step.requeue:
            runs.add(one)
    # At most one job of an unknown profile is measured, and only beside jobs that leave it room.
    started = [one for one in runs if not one.is_released and one.profile not in known]
    assert len(started) <= 1
    fresh = [one for one in runs if not one.is_released and one.attempt != step.leader]
    claimed = sum(known[one.profile].claim for one in runs if one.profile in known)
    assert (
        not fresh
        or claimed <= room
        or any(one.is_released for one in runs)
        or claimed == known[leader.profile].claim
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
    assert len(decide(_snapshot(20)).starts) == MAX_MEMBERS
    assert len(decide(_snapshot(20, running=3)).starts) == MAX_MEMBERS - 3
    assert not decide(_snapshot(20, running=MAX_MEMBERS)).starts


def test_fewer_followers_start_on_small_gpus() -> None:
    snapshot = _snapshot(20)
    for memory, count in ((2 * GIB, 2), (24 * GIB, 6), (141 * GIB, MAX_MEMBERS)):
        devices = (Device(0, "0", memory=memory),)
        assert len(decide(snapshot._replace(devices=devices)).starts) == count


def test_followers_are_spread_over_gpus() -> None:
    starts = decide(_snapshot(8, gpus=2)).starts
    assert sorted(start.devices for start in starts) == [(0,)] * 4 + [(1,)] * 4


def test_no_follower_starts_where_memory_cannot_be_measured() -> None:
    assert len(decide(_snapshot(8, takes=False)).starts) == 1


def test_only_jobs_without_an_estimate_follow() -> None:
    for other in (Request(1), Request(1, GIB), AUTO._replace(memory=GIB)):
        assert not decide(_snapshot(2, running=1, request=other)).starts
    assert len(decide(_snapshot(2, running=1, request=AUTO._replace(profile=8))).starts) == 2


def _beside(claimed: int, *, takes: bool = True, has_others: bool = False) -> list[int]:
    """Jobs without an estimate that start beside one that reserved some memory."""
    snapshot = _snapshot(2, takes=takes)
    state = DeviceState(takes_followers=takes, has_other_processes=has_others)
    running = RunningJob(1, 1, Request(1, claimed), (0,), 0.0)
    plan = decide(snapshot._replace(running=(running,), states={0: state}))
    return [start.job for start in plan.starts]


def test_unknown_job_starts_beside_others_if_half_of_the_gpu_is_free() -> None:
    assert _beside(40 * GIB) == [100, 101]
    assert not _beside(41 * GIB)
    assert not _beside(10 * GIB, takes=False)
    assert not _beside(10 * GIB, has_others=True)


def test_unknown_job_takes_all_that_others_leave() -> None:
    snapshot = _snapshot(1, running=1, request=Request(1, GIB))
    known = RunningJob(9, 9, Request(1, 20 * GIB), (0,), 0.0)
    for running in ((*snapshot.running, known), (known, *snapshot.running)):
        assert not decide(snapshot._replace(running=running)).starts


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
