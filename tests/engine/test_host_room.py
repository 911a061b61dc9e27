"""Cores, memory and counters of the host in the policy."""

from __future__ import annotations

import pytest

from stoker.engine.model import HostResources, Plan, Request, RunningJob, Snapshot, WaitingJob
from stoker.engine.policy.decide import HOST_RESERVED, IMPOSSIBLE, NO_DEVICE, NO_HOST_ROOM, decide
from stoker.engine.policy.explain import Place, explain_ready
from stoker.engine.policy.forecast import forecast
from stoker.engine.policy.host_share import claim_of, limits_of, recorded_claim, thread_share
from stoker.engine.policy.what_if import what_ifs
from tests.engine.scenario import a_device

GIB = 1 << 30
HOST = HostResources(cores=16, memory=64 * GIB, counters=(("licence", 2),))


def a_host(
    *waiting: WaitingJob,
    running: tuple[RunningJob, ...] = (),
    gpus: int = 0,
    slots: int = 1,
    cpu_slots: int = 16,
    resources: HostResources = HOST,
) -> Snapshot:
    devices = tuple(a_device(number, slots) for number in range(gpus))
    return Snapshot(0.0, devices, cpu_slots, running, waiting, resources=resources)


def a_job(id: int, gpus: int = 0, limit: float | None = None, **request: object) -> WaitingJob:
    made = Request(gpus, **request)  # type: ignore[arg-type]
    return WaitingJob(id, 0, made, limit, request_group=id)


def runs(
    id: int, on: tuple[int, ...] = (), ends_by: float | None = None, **request: object
) -> RunningJob:
    made = Request(len(on), **request)  # type: ignore[arg-type]
    return RunningJob(id, id, made, on, -10.0, ends_by)


def started(plan: Plan) -> list[int]:
    return [start.job for start in plan.starts]


def why(snapshot: Snapshot, id: int) -> list[str]:
    plan = decide(snapshot)
    job = next(job for job in snapshot.waiting if job.id == id)
    return explain_ready(job, snapshot, plan, Place(0))


def test_jobs_start_until_the_cores_are_used() -> None:
    jobs = [a_job(id, cpus=6) for id in (1, 2, 3)]
    plan = decide(a_host(*jobs))
    assert started(plan) == [1, 2]
    assert plan.waits == {3: NO_HOST_ROOM}


def test_jobs_with_gpus_claim_cores_too() -> None:
    busy = runs(1, cpus=15)
    plan = decide(a_host(a_job(2, 1), a_job(3, 1), running=(busy,), gpus=2))
    assert started(plan) == [2]
    assert plan.waits == {3: NO_HOST_ROOM}


def test_memory_is_never_over_committed() -> None:
    jobs = [a_job(id, host_memory=30 * GIB) for id in (1, 2, 3)]
    assert started(decide(a_host(*jobs))) == [1, 2]


def test_counters_are_never_over_committed() -> None:
    jobs = [a_job(id, needs=("licence=1",)) for id in (1, 2, 3)]
    assert started(decide(a_host(*jobs))) == [1, 2]


def test_job_without_memory_does_not_wait_for_memory() -> None:
    busy = runs(1, host_memory=64 * GIB)
    assert started(decide(a_host(a_job(2), running=(busy,)))) == [2]


@pytest.mark.parametrize(
    "gpus, slots, cores, expected",
    [(8, 1, 16, 1.0), (8, 1, 4, 0.5), (2, 4, 4, 0.5), (3, 1, 1, 0.333), (1, 1, 1, 1.0)],
)
def test_gpu_job_claims_one_core_or_its_part(
    gpus: int, slots: int, cores: int, expected: float
) -> None:
    devices = tuple(a_device(number, slots) for number in range(gpus))
    limits = limits_of(HostResources(cores=cores), 4, devices)
    assert recorded_claim(Request(1), limits) == (expected, None)


def test_default_jobs_fill_all_gpu_slots_of_a_host_with_few_cores() -> None:
    jobs = [a_job(id, 1) for id in range(1, 10)]
    snapshot = a_host(*jobs, gpus=3, slots=3, resources=HostResources(cores=2))
    assert len(started(decide(snapshot))) == 9


def test_default_jobs_fill_all_cpu_slots_of_a_host_with_few_cores() -> None:
    jobs = [a_job(id) for id in range(1, 10)]
    snapshot = a_host(*jobs, cpu_slots=8, resources=HostResources(cores=3))
    assert len(started(decide(snapshot))) == 8


def test_packed_jobs_are_limited_by_the_cores() -> None:
    jobs = [a_job(id, 1, memory=1 * GIB) for id in range(1, 31)]
    snapshot = a_host(*jobs)._replace(devices=(a_device(0)._replace(memory=100 * GIB),))
    assert len(started(decide(snapshot))) == 16


def test_auto_memory_without_an_estimate_claims_a_fair_part() -> None:
    limits = limits_of(HOST, 16, (a_device(0), a_device(1)))
    assert recorded_claim(Request(1, is_auto_host=True), limits) == (1.0, 32 * GIB)
    assert recorded_claim(Request(0, is_auto_host=True), limits) == (1.0, 4 * GIB)
    known = Request(0, host_memory=3 * GIB, is_auto_host=True)
    assert recorded_claim(known, limits) == (1.0, 3 * GIB)


def test_claim_of_a_job_that_runs_does_not_change_with_the_number_of_slots() -> None:
    running = runs(1, (0,))._replace(cpus=1.0)
    jobs = [a_job(id, 1) for id in (2, 3)]
    snapshot = a_host(*jobs, running=(running,), gpus=1, slots=3)
    assert started(decide(snapshot._replace(resources=HostResources(cores=1)))) == []


def test_nothing_is_counted_where_the_resources_are_unknown() -> None:
    limits = limits_of(HostResources(), 4, ())
    assert claim_of(Request(1, cpus=4, host_memory=GIB), limits) == {}
    assert recorded_claim(Request(1), limits) == (None, None)


def test_large_job_is_not_overtaken_by_jobs_that_would_delay_it() -> None:
    running = tuple(runs(id, ends_by=100.0, cpus=4) for id in (1, 2, 3))
    large, small, short = a_job(4, cpus=16), a_job(5, cpus=4), a_job(6, cpus=4, limit=60.0)
    plan = decide(a_host(large, small, short, running=running))
    assert started(plan) == [6]
    assert plan.waits == {4: NO_HOST_ROOM, 5: HOST_RESERVED}
    assert plan.host_reservation is not None
    assert tuple(plan.host_reservation) == (4, (), 100.0)


def test_job_may_use_cores_that_the_reservation_leaves_free() -> None:
    running = (runs(1, ends_by=100.0, cpus=12),)
    large, small, other = a_job(2, cpus=14), a_job(3, cpus=2), a_job(4, cpus=1)
    assert started(decide(a_host(large, small, other, running=running))) == [3]


def test_large_job_waits_for_running_jobs_without_a_known_end() -> None:
    running = (runs(1, cpus=12),)
    plan = decide(a_host(a_job(2, cpus=14), a_job(3, cpus=1), running=running))
    assert plan.waits == {2: NO_HOST_ROOM, 3: HOST_RESERVED}
    assert plan.host_reservation is not None and plan.host_reservation.at is None


def test_gpu_job_that_lacks_cores_keeps_its_gpu() -> None:
    running = (runs(1, ends_by=50.0, cpus=12),)
    wide, other = a_job(2, 1, cpus=8), a_job(3, 1, cpus=1)
    plan = decide(a_host(wide, other, running=running, gpus=1))
    assert plan.waits == {2: NO_HOST_ROOM, 3: "reserved"}
    assert plan.reservation is not None and tuple(plan.reservation) == (2, (0,), 50.0)


def test_cpu_job_does_not_take_the_cores_of_a_gpu_job_that_comes_first() -> None:
    running = (runs(1, (0,), ends_by=50.0, cpus=4),)
    first, later = a_job(2, 1, cpus=14), a_job(3, cpus=4)
    plan = decide(a_host(first, later, running=running, gpus=1))
    assert plan.waits == {2: NO_DEVICE, 3: HOST_RESERVED}
    ends_before = a_job(3, cpus=4, limit=20.0)
    assert started(decide(a_host(first, ends_before, running=running, gpus=1))) == [3]


def test_gpu_job_that_waits_for_a_busy_gpu_gets_the_cores_of_the_job_before_it() -> None:
    """Nothing is known about the end, but its core becomes free with its GPU."""
    running = (runs(1, (0,)),)
    jobs = [a_job(2, 1), *(a_job(id) for id in range(3, 20))]
    plan = decide(a_host(*jobs, running=running, gpus=1))
    assert len(started(plan)) == 15
    assert plan.waits[2] == NO_DEVICE


def test_request_larger_than_the_host_is_impossible() -> None:
    snapshot = a_host(a_job(1, cpus=32), a_job(2, needs=("other=1",)), a_job(3))
    plan = decide(snapshot)
    assert started(plan) == [3]
    assert plan.waits == {1: IMPOSSIBLE, 2: IMPOSSIBLE}
    assert why(snapshot, 1) == ["it needs 32 cores, and this host has 16 cores"]
    assert why(snapshot, 2) == ["it needs 1 other, and this host has 0 other"]


def test_why_says_what_is_free() -> None:
    running = (runs(1, cpus=10, ends_by=60.0), runs(2, cpus=3, host_memory=60 * GIB))
    snapshot = a_host(a_job(3, cpus=8), running=running)
    assert why(snapshot, 3) == [
        "it waits for 8 cores; 3 of 16 are free",
        "jobs 1, 2 use the others for at most 1m00s more",
    ]
    (change,) = what_ifs(snapshot.waiting[0], snapshot)
    assert change.sentence() == "--cpus 3 would start it now"
    memory = a_host(a_job(3, host_memory=20 * GIB), running=running)
    assert why(memory, 3)[0] == "it waits for 20 GiB of memory; 4.0 GiB of 64 GiB are free"
    assert why(memory, 3)[1] == "job 2 uses the others"
    counter = a_host(a_job(3, needs=("licence=1",)), running=(runs(1, needs=("licence=2",)),))
    assert why(counter, 3)[0] == "it waits for 1 licence; 0 of 2 are free"


def test_why_names_the_job_for_which_cores_are_reserved() -> None:
    running = (runs(1, ends_by=90.0, cpus=12),)
    snapshot = a_host(a_job(2, cpus=14), a_job(3, cpus=3), running=running)
    assert why(snapshot, 3) == [
        "it needs 3 cores; 4 of 16 are free, reserved for job 2, which comes first, likely in 1m30s"
    ]


def test_forecast_knows_when_cores_become_free() -> None:
    running = (runs(1, ends_by=90.0, cpus=12),)
    snapshot = a_host(a_job(2, cpus=14, limit=10.0), a_job(3, cpus=4), running=running)
    assert forecast(snapshot) == {2: 90.0, 3: 100.0}


@pytest.mark.parametrize(
    ("request_", "count", "slots", "cores", "expected"),
    [
        (Request(0), 4, 1, 16, 1),
        (Request(0, cpus=6), 4, 1, 16, 6),
        (Request(1), 4, 1, 16, 4),
        (Request(3), 4, 1, 16, 12),
        (Request(1), 4, 2, 16, 2),
        (Request(1, exclusive=True), 4, 2, 16, 4),
        (Request(1, cpus=1), 4, 1, 16, 1),
        (Request(1), 8, 1, 4, 1),
        (Request(1, memory=20 * GIB), 2, 1, 16, 2),
    ],
)
def test_threads_of_a_job_are_its_part_of_the_cores(
    request_: Request, count: int, slots: int, cores: int, expected: int
) -> None:
    devices = [a_device(number, slots)._replace(memory=80 * GIB) for number in range(count)]
    assert thread_share(request_, devices[: request_.gpus], devices, cores) == expected
