"""GPUs shared by memory, other processes on GPUs, and which GPU a job gets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.engine.model import Device, DeviceState, Plan, Request, RunningJob, Snapshot, WaitingJob
from stoker.engine.policy.decide import IMPOSSIBLE, NO_DEVICE, RESERVED, decide
from stoker.engine.policy.eligible import is_eligible
from stoker.engine.policy.explain import Place, explain_ready
from stoker.engine.policy.placement import amount_of, capacity
from stoker.engine.policy.what_if import what_ifs
from stoker.engine.profiles.estimates import NO_ESTIMATES, Estimate, Estimates

GIB = 1 << 30


def a_gpu(number: int = 0, memory: int = 80, slots: int = 1, model: str = "H200") -> Device:
    return Device(number, str(number), slots, model, f"GPU-{number:08d}", memory * GIB)


def a_job(id: int, request: Request, limit: float | None = None) -> WaitingJob:
    return WaitingJob(id, 0, request, limit)


def a_running_job(
    id: int, request: Request, on: tuple[int, ...], ends: float | None = None
) -> RunningJob:
    return RunningJob(id, id, request, on, 0.0, ends)


def sharing(memory: int, gpus: int = 1) -> Request:
    return Request(gpus, memory * GIB)


def plan_of(
    devices: tuple[Device, ...],
    *waiting: WaitingJob,
    running: tuple[RunningJob, ...] = (),
    states: dict[int, DeviceState] | None = None,
    estimates: Estimates = NO_ESTIMATES,
) -> Plan:
    return decide(Snapshot(0.0, devices, 4, running, waiting, False, states, estimates=estimates))


def estimates(**seconds: float) -> Estimates:
    """Steady profiles: `p7=60` is profile 7 with 60 seconds."""
    return Estimates({int(name[1:]): Estimate(value) for name, value in seconds.items()})


def placed(plan: Plan) -> dict[int, tuple[int, ...]]:
    return {start.job: start.devices for start in plan.starts}


def test_jobs_that_request_memory_share_a_gpu() -> None:
    jobs = [a_job(id, sharing(30)) for id in (1, 2, 3)]
    plan = plan_of((a_gpu(),), *jobs)
    assert placed(plan) == {1: (0,), 2: (0,)}
    assert plan.waits == {3: NO_DEVICE}


def test_idle_gpus_are_used_before_any_is_shared() -> None:
    plan = plan_of((a_gpu(0), a_gpu(1)), *(a_job(id, sharing(30)) for id in (1, 2, 3)))
    assert placed(plan) == {1: (0,), 2: (1,), 3: (0,)}


def test_job_without_a_memory_request_gets_a_whole_gpu() -> None:
    beside = a_running_job(1, sharing(10), (0,))
    plan = plan_of((a_gpu(),), a_job(2, Request(1)), running=(beside,))
    assert plan.waits == {2: NO_DEVICE}
    plan = plan_of((a_gpu(),), a_job(2, sharing(10)), running=(a_running_job(1, Request(1), (0,)),))
    assert plan.waits == {2: NO_DEVICE}


def test_slots_divide_a_gpu_and_exclusive_takes_all_of_it() -> None:
    gpu = a_gpu(slots=2)
    plan = plan_of((gpu,), *(a_job(id, Request(1)) for id in (1, 2, 3)))
    assert placed(plan) == {1: (0,), 2: (0,)}
    alone = Request(1, exclusive=True)
    plan = plan_of((gpu,), a_job(4, alone), running=(a_running_job(1, Request(1), (0,)),))
    assert plan.waits == {4: NO_DEVICE}
    assert placed(plan_of((gpu,), a_job(4, alone), a_job(5, Request(1)))) == {4: (0,)}


def test_gpu_with_other_processes_takes_only_jobs_that_share() -> None:
    states = {
        0: DeviceState(
            unreserved_bytes=60 * GIB, has_other_processes=True, note="user2 (pid 7) has 60 GiB"
        )
    }
    assert plan_of((a_gpu(),), a_job(1, Request(1)), states=states).waits == {1: NO_DEVICE}
    assert placed(plan_of((a_gpu(),), a_job(1, sharing(20)), states=states)) == {1: (0,)}
    assert plan_of((a_gpu(),), a_job(1, sharing(21)), states=states).waits == {1: NO_DEVICE}


def test_display_server_does_not_block_a_whole_gpu() -> None:
    states = {0: DeviceState(unreserved_bytes=300 << 20)}
    assert placed(plan_of((a_gpu(),), a_job(1, Request(1)), states=states)) == {1: (0,)}


def test_closed_gpu_takes_no_jobs() -> None:
    states = {0: DeviceState(closed_reason="drained")}
    plan = plan_of((a_gpu(0), a_gpu(1)), a_job(1, Request(1)), a_job(2, Request(1)), states=states)
    assert placed(plan) == {1: (1,)}
    assert plan.waits == {2: NO_DEVICE}


@pytest.mark.parametrize(
    ("request_", "gpu"),
    [
        (Request(1, ids=("2",)), 2),
        (Request(1, ids=("GPU-00000001",)), 1),
        (Request(1, prefer=("2",)), 2),
        (Request(1, model="a100"), 2),
        (Request(1, min_memory=100 * GIB), 1),
    ],
)
def test_job_gets_the_requested_gpu(request_: Request, gpu: int) -> None:
    gpus = (a_gpu(0), a_gpu(1, memory=141), a_gpu(2, memory=40, model="NVIDIA A100"))
    assert placed(plan_of(gpus, a_job(1, request_))) == {1: (gpu,)}


def test_job_does_not_wait_for_a_busy_preferred_gpu() -> None:
    busy = a_running_job(1, Request(1), (1,))
    plan = plan_of((a_gpu(0), a_gpu(1)), a_job(2, Request(1, prefer=("1",))), running=(busy,))
    assert placed(plan) == {2: (0,)}


def test_more_memory_than_any_gpu_has_is_impossible() -> None:
    assert plan_of((a_gpu(),), a_job(1, sharing(81))).waits == {1: IMPOSSIBLE}


def test_small_jobs_cannot_starve_one_that_needs_a_whole_gpu() -> None:
    running = (a_running_job(1, sharing(30), (0,)), a_running_job(2, sharing(30), (0,)))
    whole, small = a_job(3, Request(1)), a_job(4, sharing(10))
    plan = plan_of((a_gpu(),), whole, small, running=running)
    assert plan.waits == {3: NO_DEVICE, 4: RESERVED}
    assert plan.reservation is not None and plan.reservation.devices == (0,)


def test_job_blocked_only_by_other_processes_gets_no_reservation() -> None:
    states = {0: DeviceState(unreserved_bytes=20 * GIB, has_other_processes=True)}
    plan = plan_of((a_gpu(),), a_job(1, Request(1)), a_job(2, sharing(30)), states=states)
    assert placed(plan) == {2: (0,)}
    assert plan.waits == {1: NO_DEVICE}


def test_job_may_use_memory_that_the_reservation_leaves() -> None:
    running = (a_running_job(1, sharing(60), (0,), ends=100.0),)
    plan = plan_of(
        (a_gpu(),), a_job(2, sharing(50)), a_job(3, sharing(20)), a_job(4, sharing(20)),
        running=running,
    )  # fmt: skip
    assert placed(plan) == {3: (0,)}  # 50 + 20 fit at 100 s; another 20 would not
    assert plan.waits == {2: NO_DEVICE, 4: NO_DEVICE}


def test_estimates_let_short_jobs_be_backfilled() -> None:
    known = estimates(p1=1000.0, p3=100.0, p4=900.0)
    busy = a_running_job(1, Request(1), (0,))._replace(profile=1)
    wide = a_job(2, Request(2))
    short = a_job(3, Request(1))._replace(profile=3)
    long = a_job(4, Request(1))._replace(profile=4)
    gpus = (a_gpu(0), a_gpu(1))
    plan = plan_of(gpus, wide, short, running=(busy,), estimates=known)
    assert placed(plan) == {3: (1,)}
    plan = plan_of(gpus, wide, long, running=(busy,), estimates=known)
    assert plan.waits == {2: NO_DEVICE, 4: RESERVED}


def test_fair_share_groups_take_turns() -> None:
    jobs = [a_job(id, Request(1))._replace(fair_share_group="a") for id in (1, 2, 3)]
    jobs += [a_job(id, Request(1))._replace(fair_share_group="b") for id in (4, 5, 6)]
    gpus = tuple(a_gpu(number) for number in range(4))
    assert placed(plan_of(gpus, *jobs)).keys() == {1, 2, 4, 5}
    mine = tuple(
        a_running_job(9 + n, Request(1), (n,))._replace(fair_share_group="a") for n in range(2)
    )
    assert placed(plan_of(gpus, *jobs, running=mine)).keys() == {4, 5}


def test_priority_comes_before_fair_share() -> None:
    jobs = [a_job(id, Request(1))._replace(fair_share_group="a", priority=1) for id in (1, 2)]
    jobs.append(a_job(3, Request(1))._replace(fair_share_group="b"))
    assert placed(plan_of((a_gpu(0), a_gpu(1)), *jobs)).keys() == {1, 2}


def test_jobs_are_ordered_by_response_ratio() -> None:
    known = estimates(p1=3600.0, p2=60.0)
    long = a_job(1, Request(1))._replace(profile=1, since=-600.0)
    short = a_job(2, Request(1))._replace(profile=2, since=-30.0)
    assert placed(plan_of((a_gpu(),), long, short, estimates=known)).keys() == {2}
    older = long._replace(since=-3600.0)
    assert placed(plan_of((a_gpu(),), older, short, estimates=known)).keys() == {1}


def test_job_past_its_patience_is_not_overtaken() -> None:
    long = a_job(1, Request(1))._replace(profile=1, since=-8 * 86400.0)
    short = a_job(2, Request(1))._replace(profile=2, since=-3600.0)
    known = estimates(p1=1e9, p2=60.0)
    assert placed(plan_of((a_gpu(),), long, short, estimates=known)).keys() == {1}


def test_why_names_the_users_of_memory_and_a_request_that_would_start() -> None:
    states = {0: DeviceState(30 * GIB, True, None, "user2 (pid 4121) has 30 GiB")}
    running = (a_running_job(1, sharing(40), (0,))._replace(profile=1),)
    job = a_job(2, sharing(20))
    snapshot = Snapshot(
        0.0, (a_gpu(),), 4, running, (job,), False, states, estimates=estimates(p1=600.0)
    )
    assert explain_ready(job, snapshot, decide(snapshot), Place(0)) == [
        "it needs 1 GPU with 20 GiB free",
        "GPU 0 runs job 1, likely for 10m00s more and is used by others: user2 (pid 4121) has 30"
        " GiB and has 10 GiB free",
    ]
    (change,) = what_ifs(job, snapshot)
    assert change.sentence() == "--gpu-mem 10G would start it now"


REQUESTS = st.one_of(
    st.integers(1, 3).map(Request),
    st.tuples(st.integers(1, 2), st.integers(1, 90)).map(lambda two: Request(two[0], two[1] * GIB)),
    st.just(Request(1, exclusive=True)),
)


@given(
    st.lists(
        st.builds(a_gpu, st.just(0), st.sampled_from([40, 80]), st.integers(1, 3)), max_size=4
    ),
    st.lists(REQUESTS, max_size=12),
    st.lists(st.integers(0, 80), min_size=4, max_size=4),
    st.booleans(),
)
def test_reservations_never_exceed_the_memory_of_a_gpu(
    gpus: list[Device], requests: list[Request], foreign: list[int], compute: bool
) -> None:
    devices = tuple(gpu._replace(number=n, visible=str(n)) for n, gpu in enumerate(gpus))
    states = {
        n: DeviceState(foreign[n] * GIB, compute and foreign[n] > 0) for n in range(len(gpus))
    }
    jobs = {id: a_job(id, request) for id, request in enumerate(requests, 1)}
    first = plan_of(devices, *jobs.values(), states=states)
    taken = dict.fromkeys(range(len(devices)), 0)
    whole: set[int] = set()
    for start in first.starts:
        request = jobs[start.job].request
        assert len(set(start.devices)) == request.gpus
        for number in start.devices:
            amount = amount_of(request, devices[number])
            assert is_eligible(request, devices[number])
            assert number not in whole
            if amount == capacity(devices[number]):
                assert not taken[number] and not states[number].has_other_processes
                whole.add(number)
            taken[number] += amount
    for number, amount in taken.items():
        if number not in whole:
            assert (
                not amount or amount <= capacity(devices[number]) - states[number].unreserved_bytes
            )


def test_gpu_where_the_job_ran_out_of_memory_is_avoided_if_others_qualify() -> None:
    burnt = Request(1, 10 * GIB, avoid=("GPU-00000000",))
    assert placed(plan_of((a_gpu(0), a_gpu(1)), a_job(1, burnt))) == {1: (1,)}
    busy = (a_running_job(9, Request(1), (1,)),)
    assert plan_of((a_gpu(0), a_gpu(1)), a_job(1, burnt), running=busy).waits == {1: NO_DEVICE}
    assert placed(plan_of((a_gpu(0),), a_job(1, burnt))) == {1: (0,)}
