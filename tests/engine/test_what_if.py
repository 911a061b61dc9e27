"""Changes that `why` suggests: each of them starts the job when it is made."""

from __future__ import annotations

from hypothesis import given

from stoker.client.submit.job_options import as_keyword
from stoker.client.submit.option_values import GPU_NAMES, MEMORY
from stoker.client.submit.request_edits import changed_request
from stoker.engine.model import Request, Snapshot, WaitingJob
from stoker.engine.policy.decide import AnyJob, decide, limit_waiting_jobs
from stoker.engine.policy.forecast import forecast
from stoker.engine.policy.what_if import WhatIf, what_ifs
from stoker.text.durations import parse_duration
from tests.engine import test_host_room_properties, test_share_mode
from tests.engine.scenario import a_device, a_running_job, a_waiting_job

GIB = 1 << 30


def a_host(*waiting: WaitingJob, gpus: int = 4, running: dict[int, float | None]) -> Snapshot:
    """A host with one running job on each of the first GPUs; `running`: their ends, by GPU."""
    jobs = tuple(a_running_job(gpu + 1, (gpu,), end) for gpu, end in running.items())
    return Snapshot(0.0, tuple(map(a_device, range(gpus))), 4, jobs, waiting)


def suggested(snapshot: Snapshot, id: int, **more: float) -> list[str]:
    job = next(job for job in snapshot.waiting if job.id == id)
    return [f"{one.start_words}: {one.command(id)}" for one in what_ifs(job, snapshot, **more)]  # type: ignore[arg-type]


def with_change(job: AnyJob, what_if: WhatIf) -> AnyJob:
    """The job after the change, made by the fields that an interface sends."""
    fields = dict(what_if.change.fields)
    limit = fields.pop("time_limit", job.time_limit)
    assert limit is None or isinstance(limit, float)
    for key in ("mem", "gpu_mem"):
        if key in fields:
            fields[key] = MEMORY.parse(str(fields[key]))
    if fields.get("gpu_ids"):
        fields["gpu_ids"] = GPU_NAMES.check(fields["gpu_ids"])
    request = changed_request(job.request, fields, as_keyword) or job.request
    return job._replace(request=request, time_limit=limit, kept=())


def changed(snapshot: Snapshot, job: AnyJob, what_if: WhatIf) -> Snapshot:
    others = (other for other in snapshot.waiting if other.id != job.id)
    return snapshot._replace(waiting=(*others, with_change(job, what_if)))


def check_all(snapshot: Snapshot) -> None:
    started = {start.job for start in decide(limit_waiting_jobs(snapshot)).starts}
    likely = forecast(snapshot)
    for job in snapshot.waiting:
        if job.id in started:
            continue
        for found in what_ifs(job, snapshot, starts_in=likely.get(job.id)):
            later = changed(snapshot, job, found)
            if found.starts_in:
                assert forecast(later)[job.id] == found.starts_in < likely[job.id]
            else:
                plan = decide(limit_waiting_jobs(later))
                assert job.id in {start.job for start in plan.starts}


@given(test_host_room_properties.snapshots())
def test_every_suggestion_about_cores_and_memory_is_true(snapshot: Snapshot) -> None:
    check_all(snapshot)


@given(test_share_mode.snapshots())
def test_every_suggestion_about_gpus_is_true(snapshot: Snapshot) -> None:
    check_all(snapshot)


def test_fewer_gpus_are_suggested() -> None:
    host = a_host(a_waiting_job(9, gpus=4), running={0: None})
    assert suggested(host, 9) == ["start now with 3 GPUs: stoker edit 9 --gpus 3"]


def test_less_gpu_memory_is_suggested_but_not_less_than_earlier_runs_used() -> None:
    devices = tuple(a_device(n)._replace(memory=80 * GIB) for n in range(2))
    jobs = tuple(
        a_running_job(n, (n,))._replace(request=Request(1, memory=41 * GIB)) for n in (0, 1)
    )
    job = WaitingJob(9, 0, Request(1, memory=50 * GIB))
    host = Snapshot(0.0, devices, 4, jobs, (job,))
    words = ["start now with 39 GiB of GPU memory: stoker edit 9 --gpu-mem 39G"]
    assert suggested(host, 9) == words
    assert suggested(host, 9, peak_memory=39 * GIB) == words
    assert suggested(host, 9, peak_memory=40 * GIB) == []


def test_time_limit_is_suggested_that_ends_before_a_reservation_is_due() -> None:
    host = a_host(a_waiting_job(8, gpus=4), a_waiting_job(9), running={0: 1230.0, 1: 1230.0})
    assert suggested(host, 9) == [
        "start now with a time limit of at most 19m: stoker edit 9 --time-limit 19m"
    ]
    assert parse_duration("19m") == 1140.0
    due = a_host(a_waiting_job(8, gpus=4), a_waiting_job(9), running={0: 20.0})
    assert suggested(due, 9) == []


def test_much_earlier_start_is_suggested_if_no_change_starts_the_job_now() -> None:
    host = a_host(a_waiting_job(9, gpus=4), running={0: 7200.0, 1: 600.0, 2: 700.0, 3: 800.0})
    assert forecast(host) == {9: 7200.0}
    assert suggested(host, 9, starts_in=7200.0) == [
        "start in about 13m20s with 3 GPUs: stoker edit 9 --gpus 3"
    ]
    close = a_host(a_waiting_job(9, gpus=2), gpus=2, running={0: 700.0, 1: 600.0})
    assert suggested(close, 9, starts_in=700.0) == []


def test_changed_job_waits_behind_the_jobs_with_its_new_request() -> None:
    """Twenty jobs with one GPU come first, and only two GPUs are free."""
    small = tuple(a_waiting_job(id)._replace(request_group=1) for id in range(1, 21))
    wide = a_waiting_job(30, gpus=4)._replace(request_group=2)
    host = a_host(*small, wide, running={0: None, 1: None})
    assert suggested(host, 30) == []


def test_deep_queue_costs_a_limited_number_of_decisions() -> None:
    requests = [Request(1 + id % 4, cpus=id % 50) for id in range(5000)]
    waiting = tuple(
        WaitingJob(id, 0, request, request_group=1 + requests.index(request))
        for id, request in enumerate(requests, 1)
    )
    last = WaitingJob(9999, 0, Request(64), request_group=9999)
    devices = tuple(map(a_device, range(64)))
    running = tuple(a_running_job(10_000 + n, (n,), 1e6) for n in range(64))
    host = Snapshot(0.0, devices, 4, running, (*waiting, last))
    calls = []

    class Counted(Snapshot):
        def _replace(self, **values):  # type: ignore[no-untyped-def]
            calls.append(values)
            return Snapshot._replace(self, **values)

    what_ifs(last, Counted(**host._asdict()), starts_in=1e6)
    assert len(calls) < 20
