"""The limit of an array: how many of its jobs run at once."""

from __future__ import annotations

from stoker.engine.model import Device, Request, RunningJob, Snapshot, WaitingJob
from stoker.engine.policy.decide import ARRAY_LIMIT, decide
from stoker.engine.policy.explain import places, reasons_of

ARRAY = 7
LIMITED = Request(gpus=1, array=ARRAY)


def a_snapshot(most: int, running: int, waiting: int, others: int = 0) -> Snapshot:
    """Eight GPUs, jobs of the array that run and wait, and other waiting jobs behind them."""
    jobs = [WaitingJob(20 + n, 0, LIMITED, request_group=1) for n in range(waiting)]
    jobs += [WaitingJob(40 + n, 0, Request(gpus=1), request_group=2) for n in range(others)]
    return Snapshot(
        now=0.0,
        devices=tuple(Device(number, str(number)) for number in range(8)),
        cpu_slots=4,
        running=tuple(RunningJob(10 + n, n, LIMITED, (n,), 0.0) for n in range(running)),
        waiting=tuple(jobs),
        limits={f"array:{ARRAY}": most},
    )


def test_array_starts_no_more_jobs_than_its_limit() -> None:
    plan = decide(a_snapshot(most=3, running=1, waiting=5))
    assert [start.job for start in plan.starts] == [20, 21]
    assert plan.waits == {22: ARRAY_LIMIT, 23: ARRAY_LIMIT, 24: ARRAY_LIMIT}


def test_limited_jobs_neither_delay_others_nor_get_a_reservation() -> None:
    plan = decide(a_snapshot(most=1, running=1, waiting=3, others=2))
    assert [start.job for start in plan.starts] == [40, 41]
    assert plan.reservation is None
    assert plan.host_reservation is None


def test_lowered_limit_starts_nothing_until_enough_jobs_ended() -> None:
    assert decide(a_snapshot(most=1, running=3, waiting=2)).starts == ()


def test_array_without_a_limit_uses_all_gpus() -> None:
    snapshot = a_snapshot(most=1, running=1, waiting=9)._replace(limits={})
    assert len(decide(snapshot).starts) == 7


def test_reason_names_the_limit_and_the_running_jobs() -> None:
    snapshot = a_snapshot(most=2, running=1, waiting=3)
    plan = decide(snapshot)
    last = snapshot.waiting[-1]
    assert reasons_of(last, snapshot, plan) == (
        ["the array runs at most 2 jobs at once: jobs 10, 20 run"], False,
    )  # fmt: skip
    assert places(snapshot)[last.id].ahead == 2
