"""Why a job waits in a few words: the same reasons as in full sentences."""

from __future__ import annotations

from hypothesis import given

from stoker.engine.model import HostResources, Plan, Request, Reservation, Snapshot, WaitingJob
from stoker.engine.policy.decide import decide, limit_waiting_jobs
from stoker.engine.policy.short_reasons import reserved_for, short_reason
from tests.engine import test_host_room_properties, test_share_mode
from tests.engine.scenario import a_device, a_running_job, a_waiting_job

GIB = 1 << 30


def short(snapshot: Snapshot, id: int) -> str:
    job = next(job for job in snapshot.waiting if job.id == id)
    return short_reason(job, snapshot, decide(snapshot))[0]


def a_host(*waiting: WaitingJob, gpus: int = 2, **more: object) -> Snapshot:
    running = (a_running_job(1, (0,)),)
    host = Snapshot(0.0, tuple(map(a_device, range(gpus))), 4, running, waiting)
    return host._replace(**more)  # type: ignore[arg-type]


def test_reserved_gpus_name_the_job() -> None:
    host = a_host(a_waiting_job(25, gpus=2), a_waiting_job(26))
    assert short(host, 25) == "needs 2 GPUs, 1 is free"
    assert short(host, 26) == "GPUs 0, 1 reserved for 25"
    assert reserved_for(host, decide(host)) == {0: 25, 1: 25}


def test_many_reserved_gpus_are_counted() -> None:
    host = a_host(a_waiting_job(25, gpus=8), a_waiting_job(26), gpus=8)
    assert short(host, 26) == "8 GPUs reserved for 25"


def test_busy_gpu_that_one_job_gets_next_is_not_called_reserved() -> None:
    host = a_host(a_waiting_job(25), gpus=1)
    assert decide(host).reservation == Reservation(25, (0,), None)
    assert reserved_for(host, decide(host)) == {}
    assert short(host, 25) == "no GPU is free"
    idle = Plan((), Reservation(25, (1,), None), {25: "no_device"})
    assert reserved_for(a_host(a_waiting_job(25)), idle) == {1: 25}


def test_memory_and_impossible_requests_are_named() -> None:
    big = WaitingJob(2, 0, Request(1, memory=20 * GIB))
    devices = (a_device(0)._replace(memory=30 * GIB),)
    running = (a_running_job(1, (0,))._replace(request=Request(1, memory=20 * GIB)),)
    host = Snapshot(0.0, devices, 4, running, (big,))
    assert short(host, 2) == "no GPU with 20 GiB is free"
    assert short(a_host(a_waiting_job(2, gpus=5)), 2) == "needs 5 GPUs, 2 qualify"


def test_limits_and_host_room_are_named() -> None:
    assert short(a_host(a_waiting_job(2), draining=True), 2) == "the queue is drained"
    job = a_waiting_job(2)._replace(fair_share_group="group:x")
    assert short(a_host(job, limits={"group:x": 0}), 2) == "limit of 0 running"
    cores = WaitingJob(2, 0, Request(1, cpus=8))
    resources = HostResources(cores=8)
    assert short(a_host(cores, resources=resources), 2) == "needs 8 cores, 7 cores free"


@given(test_host_room_properties.snapshots())
def test_every_waiting_job_has_a_short_reason(snapshot: Snapshot) -> None:
    _check(snapshot)


@given(test_share_mode.snapshots())
def test_every_waiting_job_has_a_short_reason_on_shared_gpus(snapshot: Snapshot) -> None:
    _check(snapshot)


def _check(snapshot: Snapshot) -> None:
    seen = limit_waiting_jobs(snapshot)
    plan = decide(seen)
    started = {start.job for start in plan.starts}
    for job in seen.waiting:
        if job.id not in started:
            words, waits_for_others = short_reason(job, seen, plan)
            assert words or waits_for_others
            assert len(words) < 80
