"""What GPUs do, in words, from the decision that started no job on them."""

from __future__ import annotations

from typing import Any

import pytest

from stoker.engine.model import (
    Device,
    DeviceState,
    HostResources,
    Plan,
    Request,
    RunningJob,
    Snapshot,
    WaitingJob,
)
from stoker.engine.policy.decide import NO_DEVICE, decide
from stoker.features.history.gpu_activity import NO_PLAN, GpuActivity, gpu_activities

GIB = 1 << 30
GPUS = (Device(0, "0", memory=80 * GIB), Device(1, "1", memory=80 * GIB))
ONE = Request(gpus=1)


def activities(
    *requests: Request,
    states: dict[int, DeviceState] | None = None,
    running: tuple[RunningJob, ...] = (),
    obstacle: str | None = None,
    own_user: str = "",
    **facts: Any,
) -> list[GpuActivity]:
    """What two GPUs do after a decision about jobs 25, 26, ... with these requests."""
    waiting = tuple(WaitingJob(25 + i, 0, one) for i, one in enumerate(requests))
    snapshot = Snapshot(0.0, GPUS, 4, running, waiting, states=states)._replace(**facts)
    plan = decide(snapshot, with_reasons=False)
    jobs: dict[int, tuple[int, ...]] = {}
    placed = [(one.id, one.devices) for one in running]
    for id, devices in [*placed, *plan.starts]:
        for number in devices:
            jobs[number] = (*jobs.get(number, ()), id)
    found = gpu_activities(
        GPUS, states or {}, waiting, plan, jobs, obstacle=obstacle, own_user=own_user
    )
    assert sorted(found) == [0, 1]
    return [found[0], found[1]]


def job(id: int, *devices: int) -> RunningJob:
    return RunningJob(id, id, Request(gpus=len(devices)), devices, 0.0)


def waiting(reason: str) -> GpuActivity:
    return GpuActivity("waiting", (), reason)


def test_gpu_with_jobs_is_busy_and_one_without_work_is_idle() -> None:
    assert activities(running=(job(7, 0),)) == [GpuActivity("busy", (7,)), GpuActivity("idle")]


def test_job_that_starts_makes_its_gpu_busy() -> None:
    assert activities(ONE) == [GpuActivity("busy", (25,)), GpuActivity("idle")]


def test_waiting_job_without_gpus_leaves_gpus_without_work() -> None:
    found = gpu_activities(GPUS, {}, [WaitingJob(25, 0, Request())], NO_PLAN, {})
    assert found == {0: GpuActivity("idle"), 1: GpuActivity("idle")}


def test_idle_gpu_is_reserved_for_the_first_job_that_does_not_fit() -> None:
    assert activities(Request(gpus=2), ONE, running=(job(7, 0),)) == [
        GpuActivity("busy", (7,)),
        waiting("reserved for job 25"),
    ]


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (DeviceState(closed_reason="drained"), "drained"),
        (
            DeviceState(closed_reason="in quarantine: the driver reported Xid 79"),
            "quarantined: the driver reported Xid 79",
        ),
        (DeviceState(closed_reason="clearing", closes_briefly=True), "waiting for the driver"),
        (DeviceState(closed_reason="leased to another process"), "leased to another process"),
        (
            DeviceState(GIB, has_other_processes=True, other_users=("alice",)),
            "memory held by another user (alice)",
        ),
        (DeviceState(GIB, has_other_processes=True), "memory held by another user"),
        (
            DeviceState(GIB, has_other_processes=True, other_users=("me",)),
            "memory held by a process that Stoker did not start",
        ),
    ],
)
def test_state_of_an_idle_gpu_is_the_reason(state: DeviceState, reason: str) -> None:
    found = activities(ONE, states={0: state, 1: state}, own_user="me")
    assert found == [waiting(reason), waiting(reason)]


def test_gpu_of_other_users_without_waiting_jobs_is_theirs() -> None:
    state = DeviceState(GIB, has_other_processes=True, other_users=("alice",))
    found = activities(states={0: state})[0]
    assert found == GpuActivity("others", reason="memory held by another user (alice)")
    shared = activities(states={0: state}, running=(job(7, 0),))[0]
    assert shared == GpuActivity("busy", (7,), "memory held by another user (alice)")


def test_drained_gpu_without_waiting_jobs_says_so() -> None:
    drained = DeviceState(closed_reason="drained")
    brief = DeviceState(closed_reason="clearing", closes_briefly=True)
    found = activities(states={0: drained, 1: brief})
    assert found == [GpuActivity("idle", reason="drained"), GpuActivity("idle")]


def test_job_that_needs_more_gpus_than_are_open_is_the_reason() -> None:
    states = {0: DeviceState(closed_reason="drained")}
    assert activities(Request(gpus=2), states=states) == [
        waiting("drained"),
        waiting("the waiting jobs need 2 GPUs"),
    ]


def test_gpu_that_no_waiting_job_may_use_says_so() -> None:
    states = {1: DeviceState(closed_reason="drained")}
    found = activities(Request(gpus=1, ids=("1",)), states=states)
    assert found[0] == waiting("the waiting jobs cannot run on it")


def test_memory_that_is_too_small_is_held_by_others() -> None:
    states = {number: DeviceState(30 * GIB, other_users=("bob",)) for number in (0, 1)}
    found = activities(Request(gpus=1, memory=60 * GIB), states=states)
    assert found == [waiting("memory held by another user (bob)")] * 2


def test_cores_of_the_host_are_a_reason() -> None:
    found = activities(
        Request(gpus=1, cpus=8),
        running=(RunningJob(7, 7, Request(cpus=4), (), 0.0),),
        resources=HostResources(cores=8),
    )
    reserved = waiting("reserved for job 25")
    needs = waiting("the waiting jobs need more cores or memory of the host")
    assert sorted(found) == sorted([reserved, needs])


def test_limit_of_a_group_is_a_reason() -> None:
    waits = WaitingJob(25, 0, ONE, fair_share_group="sweep a")
    plan = decide(Snapshot(0.0, GPUS, 4, (), (waits,), limits={"sweep a": 0}))
    found = gpu_activities(GPUS, {}, (waits,), plan, {})
    assert found[0] == waiting("sweep a has as many running jobs as it may have")


def test_obstacle_for_all_jobs_is_the_reason() -> None:
    found = activities(ONE, draining=True, obstacle="the queue is drained")
    assert found == [waiting("the queue is drained")] * 2


def test_gpu_that_preemptible_jobs_left_is_reserved_for_the_job_that_caused_it() -> None:
    wide = WaitingJob(25, 0, Request(gpus=2), kept=(0, 1))
    plan = decide(Snapshot(0.0, GPUS, 4, (job(7, 0),), (wide,)), with_reasons=False)
    found = gpu_activities(GPUS, {}, (wide,), plan, {0: (7,)})
    assert found[1] == waiting("reserved for job 25")


def test_gpu_is_kept_from_preemptible_jobs_that_would_have_to_give_way_at_once() -> None:
    waits = WaitingJob(25, 0, ONE._replace(preemptible=True))
    found = gpu_activities(GPUS, {}, (waits,), NO_PLAN, {})
    assert found[0] == waiting("kept for jobs that are not preemptible")


def test_gpu_leased_by_another_user_is_held_by_them() -> None:
    state = DeviceState(other_user="alice")
    waits = WaitingJob(25, 0, ONE)
    plan = Plan((), None, {25: NO_DEVICE})
    found = gpu_activities(GPUS, {0: state}, (waits,), plan, {})
    assert found[0] == waiting("memory held by another user (alice)")
