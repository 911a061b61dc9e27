"""Which preemptible jobs give way, and to what."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.engine.model import Device, DeviceState, Request, RunningJob, Snapshot, WaitingJob
from stoker.engine.policy.decide import NO_DEVICE, VACATING, decide, order_of
from stoker.engine.policy.preemption import (
    MIN_RUN_SECONDS,
    OutsideDemand,
    Preemption,
    can_be_asked,
    plan_for_others,
    plan_preemptions,
)
from stoker.engine.profiles.estimates import Estimate, Estimates

GIB = 1 << 30
NOW = 1000.0


def a_host(count: int, memory: int = 0) -> tuple[Device, ...]:
    return tuple(
        Device(number, str(number), uuid=f"GPU-{number}", memory=memory) for number in range(count)
    )


def running(
    id: int,
    *on: int,
    since: float = 0.0,
    memory: int | None = None,
    preemptible: bool = True,
    preemptions: int = 0,
    gives_way: bool = False,
    profile: int = 0,
) -> RunningJob:
    return RunningJob(
        id=id,
        attempt=id,
        request=Request(gpus=len(on), memory=memory, preemptible=preemptible),
        devices=on,
        started=since,
        profile=profile,
        preemptions=preemptions,
        gives_way=gives_way,
    )


def waiting(id: int, gpus: int = 1, preemptible: bool = False, **more: object) -> WaitingJob:
    memory = more.pop("memory", None)
    request = Request(gpus=gpus, memory=memory, preemptible=preemptible)  # type: ignore[arg-type]
    return WaitingJob(id, 0, request, **more)  # type: ignore[arg-type]


def snapshot(
    devices: tuple[Device, ...],
    jobs: list[RunningJob],
    queue: list[WaitingJob],
    estimates: Estimates | None = None,
) -> Snapshot:
    made = Snapshot(NOW, devices, 2, tuple(jobs), tuple(queue))
    return made if estimates is None else made._replace(estimates=estimates)


def asked(
    devices: tuple[Device, ...],
    jobs: list[RunningJob],
    queue: list[WaitingJob],
    estimates: Estimates | None = None,
) -> tuple[Preemption, ...]:
    seen = snapshot(devices, jobs, queue, estimates)
    return plan_preemptions(seen, decide(seen))


def test_preemptible_jobs_come_after_all_others_whatever_their_priority() -> None:
    first = waiting(1, preemptible=True)._replace(priority=9)
    order = order_of(snapshot(a_host(1), [], [first, waiting(2)]))
    assert [job.id for job in order] == [2, 1]


def test_job_that_does_not_fit_makes_the_youngest_preemptible_job_give_way() -> None:
    jobs = [running(1, 0, since=10.0), running(2, 1, since=500.0), running(3, 2, since=90.0)]
    assert asked(a_host(3), jobs, [waiting(9)]) == (Preemption(9, (1,), (2,)),)


def test_jobs_that_gave_way_less_often_are_asked_first() -> None:
    jobs = [running(1, 0, since=10.0), running(2, 1, since=500.0, preemptions=2)]
    assert asked(a_host(2), jobs, [waiting(9)]) == (Preemption(9, (0,), (1,)),)


def test_job_that_gave_way_before_is_asked_again_only_after_it_has_run_for_a_while() -> None:
    young = running(1, 0, since=NOW - MIN_RUN_SECONDS + 1, preemptions=1)
    assert asked(a_host(1), [young], [waiting(9)]) == ()
    old = young._replace(started=NOW - MIN_RUN_SECONDS)
    assert asked(a_host(1), [old], [waiting(9)])[0].attempts == (1,)


def test_job_that_has_just_started_is_not_asked() -> None:
    assert asked(a_host(1), [running(1, 0, since=NOW - 0.5)], [waiting(9)]) == ()


def test_no_job_gives_way_to_a_job_that_still_would_not_fit() -> None:
    jobs = [running(1, 0), running(2, 1, preemptible=False)]
    assert asked(a_host(2), jobs, [waiting(9, gpus=2)]) == ()


def test_no_job_gives_way_to_a_preemptible_job() -> None:
    assert asked(a_host(1), [running(1, 0)], [waiting(9, preemptible=True)]) == ()


def test_no_job_gives_way_to_a_job_that_fits_soon_anyway() -> None:
    jobs = [running(1, 0), running(2, 1, since=NOW - 55, preemptible=False, profile=7)]
    soon, late = Estimates({7: Estimate(60.0)}), Estimates({7: Estimate(600.0)})
    assert asked(a_host(2), jobs, [waiting(9)], soon) == ()
    assert asked(a_host(2), jobs, [waiting(9)], late)[0].attempts == (1,)


def test_one_large_job_gives_way_rather_than_many_small_ones() -> None:
    jobs = [running(1, 0, 1, 2, since=10.0), *(running(n + 1, n + 2, since=900) for n in (1, 2, 3))]
    assert asked(a_host(6), jobs, [waiting(9, gpus=3)]) == (Preemption(9, (0, 1, 2), (1,)),)


def test_only_as_much_memory_is_vacated_as_the_job_needs() -> None:
    jobs = [running(n, 0, since=NOW - n, memory=20 * GIB) for n in (1, 2, 3, 4)]
    found = asked(a_host(1, 80 * GIB), jobs, [waiting(9, memory=30 * GIB)])
    assert found == (Preemption(9, (0,), (1, 2)),)


def test_several_jobs_make_several_others_give_way() -> None:
    jobs = [running(1, 0), running(2, 1), running(3, 2)]
    found = asked(a_host(3), jobs, [waiting(8), waiting(9)])
    assert [one.job for one in found] == [8, 9]
    assert len({attempt for one in found for attempt in one.attempts}) == 2


def test_job_for_which_devices_are_vacated_asks_no_more() -> None:
    jobs = [running(1, 0, gives_way=True), running(2, 1)]
    assert asked(a_host(2), jobs, [waiting(9, kept=(0,))]) == ()


def test_vacated_devices_are_kept_for_the_job_that_caused_it() -> None:
    ahead = waiting(5)._replace(priority=99)
    left = running(1, 1, gives_way=True)
    plan = decide(snapshot(a_host(2), [left], [ahead, waiting(9, gpus=2, kept=(0, 1))]))
    assert plan.starts == () and plan.waits == {9: VACATING, 5: NO_DEVICE}
    plan = decide(snapshot(a_host(2), [], [ahead, waiting(9, gpus=2, kept=(0, 1))]))
    assert [start.job for start in plan.starts] == [9]


def test_cancelled_job_keeps_nothing() -> None:
    plan = decide(snapshot(a_host(2), [running(1, 1, gives_way=True)], [waiting(5)]))
    assert [start.job for start in plan.starts] == [5]


def test_devices_that_cannot_be_used_any_more_are_not_kept() -> None:
    seen = snapshot(a_host(2), [running(1, 1)], [waiting(9, kept=(0,))])
    seen = seen._replace(states={0: DeviceState(closed_reason="drained")})
    plan = decide(seen)
    assert plan.waits == {9: NO_DEVICE}
    assert plan_preemptions(seen, plan) == (Preemption(9, (1,), (1,)),)


def test_reservation_of_an_earlier_job_is_respected() -> None:
    # Job 8 needs all GPUs and cannot start before job 1 ends, so GPUs are reserved for it.
    jobs = [running(1, 0, preemptible=False), running(2, 1)]
    assert asked(a_host(2), jobs, [waiting(8, gpus=2), waiting(9)]) == ()


def test_preemptible_job_starts_only_where_no_other_process_computes() -> None:
    devices = a_host(2, 80 * GIB)
    seen = snapshot(devices, [], [waiting(1, preemptible=True, memory=GIB)])
    seen = seen._replace(states={0: DeviceState(has_other_processes=True)})
    assert decide(seen).starts[0].devices == (1,)


def test_waiter_at_the_lease_gets_one_device_at_a_time() -> None:
    jobs = [running(1, 0), running(2, 1, since=500.0)]
    demand = OutsideDemand("bob (pid 7)", {0: None, 1: None})
    seen = snapshot(a_host(2), jobs, [])
    assert plan_for_others(seen, [demand]) == (Preemption(0, (), (1,), "bob (pid 7)"),)
    leaving = seen._replace(running=(jobs[0]._replace(gives_way=True), jobs[1]))
    assert plan_for_others(leaving, [demand]) == ()


def test_waiter_at_the_lease_of_a_normal_job_asks_nothing() -> None:
    jobs = [running(1, 0, memory=GIB), running(2, 0, memory=GIB, preemptible=False)]
    seen = snapshot(a_host(1, 80 * GIB), jobs, [])
    assert plan_for_others(seen, [OutsideDemand("bob (pid 7)", {0: None})]) == ()


def test_all_preemptible_jobs_leave_a_device_on_which_another_process_computes() -> None:
    jobs = [running(1, 0), running(2, 1), running(3, 1, preemptible=False)]
    demand = OutsideDemand("another process", {1: None}, is_using=True)
    assert plan_for_others(snapshot(a_host(2), jobs, []), [demand])[0].attempts == (2,)


# -- properties ----------------------------------------------------------------------------------


@st.composite
def queues(draw: st.DrawFn) -> Snapshot:
    """A host with any load of normal and preemptible jobs, and any queue."""
    devices = a_host(draw(st.integers(1, 5)), 80 * GIB)
    free = {device.number: 80 for device in devices}
    jobs: list[RunningJob] = []
    for id in range(1, draw(st.integers(1, 8))):
        memory = draw(st.sampled_from([None, 20, 40]))
        able = [number for number, left in free.items() if left >= (memory or 80)]
        if not able:
            break
        on = draw(st.lists(st.sampled_from(able), min_size=1, max_size=3, unique=True))
        for number in on:
            free[number] -= memory or 80
        jobs.append(
            running(
                id,
                *sorted(on),
                since=draw(st.floats(0, NOW)),
                memory=None if memory is None else memory * GIB,
                preemptible=draw(st.booleans()),
                preemptions=draw(st.integers(0, 2)),
            )
        )
    queue = [
        waiting(
            100 + n,
            draw(st.integers(1, 4)),
            draw(st.booleans()),
            memory=draw(st.sampled_from([None, 10 * GIB, 50 * GIB])),
        )
        for n in range(draw(st.integers(0, 4)))
    ]
    return snapshot(devices, jobs, queue)


@given(queues())
def test_jobs_that_give_way_are_needed_and_suffice(seen: Snapshot) -> None:
    plan = decide(seen)
    found = plan_preemptions(seen, plan)
    assert found == plan_preemptions(seen, plan)  # deterministic
    by_attempt = {job.attempt: job for job in seen.running}
    by_id = {job.id: job for job in seen.waiting}
    gone: set[int] = set()
    for one in found:
        assert one.attempts and not gone & set(one.attempts)
        assert not by_id[one.job].request.preemptible
        assert all(can_be_asked(by_attempt[attempt], NOW) for attempt in one.attempts)
        gone |= set(one.attempts)
    if found:  # the first job would start without the jobs that it asks, and not without fewer
        first = found[0]
        alone = seen._replace(waiting=(by_id[first.job],))

        def starts(asked: set[int]) -> bool:
            left = tuple(job for job in seen.running if job.attempt not in asked)
            return bool(decide(alone._replace(running=left)).starts)

        assert starts(set(first.attempts))
        for attempt in first.attempts:
            assert not starts(set(first.attempts) - {attempt})


@given(queues())
def test_every_job_that_others_make_room_for_starts_before_any_other(seen: Snapshot) -> None:
    found = plan_preemptions(seen, decide(seen))
    kept = {one.job: one.devices for one in found}
    gone = {attempt for one in found for attempt in one.attempts}
    queue = tuple(job._replace(kept=kept.get(job.id, ())) for job in seen.waiting)
    during = seen._replace(
        waiting=queue,
        running=tuple(job._replace(gives_way=job.attempt in gone) for job in seen.running),
    )
    # While they leave, nothing is asked of others for the same jobs, and no job slips in.
    plan = decide(during)
    assert all(plan.waits.get(job) == VACATING for job in kept)
    assert not {one.job for one in plan_preemptions(during, plan)} & kept.keys()
    used = {number for devices in kept.values() for number in devices}
    assert not any(used & set(start.devices) for start in plan.starts) or any(
        job.request.memory for job in seen.waiting
    )
    after = during._replace(running=tuple(job for job in seen.running if job.attempt not in gone))
    assert kept.keys() <= {start.job for start in decide(after).starts}
