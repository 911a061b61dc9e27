"""The policy: which jobs start, on which devices, and reservations."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, count, repeat

import pytest

from stoker.engine.model import Request, RunningJob, Snapshot, WaitingJob
from stoker.engine.policy.decide import (
    DRAINING,
    GROUP_LIMIT,
    IMPOSSIBLE,
    NO_CPU_SLOT,
    NO_DEVICE,
    RESERVED,
    decide,
)
from stoker.engine.policy.explain import Place, explain_ready
from tests.engine.scenario import Scenario, a_device, a_running_job, a_waiting_job

# -- the scenario helper ------------------------------------------------------------------------


def test_scenario_without_a_check_fails() -> None:
    with pytest.raises(AssertionError, match="never checked"), Scenario(gpus=1) as host:
        host.waits(1)


def test_scenario_changed_after_its_check_fails() -> None:
    with pytest.raises(AssertionError, match="never checked"), Scenario(gpus=1) as host:
        host.waits(1)
        host.check(starts={1: (0,)})
        host.waits(2)


def test_scenario_outside_of_with_is_refused() -> None:
    with pytest.raises(AssertionError, match="with Scenario"):
        Scenario(gpus=1).waits(1)


def test_scenario_reports_the_failure_inside_it_first() -> None:
    with pytest.raises(ZeroDivisionError), Scenario(gpus=1):
        raise ZeroDivisionError


def test_scenario_check_notices_a_start_it_does_not_name() -> None:
    with pytest.raises(AssertionError), Scenario(gpus=1) as host:
        host.waits(1)
        host.check()


# -- order -------------------------------------------------------------------------------------


def test_empty_queue_has_an_empty_plan() -> None:
    with Scenario(gpus=2) as host:
        host.check()


def test_first_come_is_first_served() -> None:
    with Scenario(gpus=2) as host:
        host.waits(3, 1, 2)
        host.check(starts={1: (0,), 2: (1,)}, waits={3: NO_DEVICE}, reserved=(3, (0,), None))


def test_higher_priority_starts_before_older_jobs() -> None:
    with Scenario(gpus=1) as host:
        host.waits(1)
        host.waits(2, priority=5)
        host.check(starts={2: (0,)}, waits={1: NO_DEVICE}, reserved=(1, (0,), None))


def test_negative_priority_starts_last() -> None:
    with Scenario(gpus=1) as host:
        host.waits(1, priority=-1)
        host.waits(2)
        host.check(starts={2: (0,)}, waits={1: NO_DEVICE}, reserved=(1, (0,), None))


def test_busy_device_takes_no_job() -> None:
    with Scenario(gpus=2) as host:
        host.runs(1, on=(0,))
        host.waits(2)
        host.check(starts={2: (1,)})


def test_job_waits_while_every_gpu_is_busy() -> None:
    with Scenario(gpus=2) as host:
        host.runs(1, on=(0,))
        host.runs(2, on=(1,))
        host.waits(3)
        host.check(waits={3: NO_DEVICE}, reserved=(3, (0,), None))


def test_job_with_many_gpus_gets_different_ones() -> None:
    with Scenario(gpus=4) as host:
        host.runs(1, on=(1,))
        host.waits(2, gpus=3)
        host.check(starts={2: (0, 2, 3)})


def test_job_on_a_removed_device_holds_nothing() -> None:
    with Scenario(gpus=1) as host:
        host.runs(1, on=(7,))
        host.waits(2)
        host.check(starts={2: (0,)})


# -- reservation -------------------------------------------------------------------------------


def test_free_devices_are_reserved_for_the_wide_job_that_came_first() -> None:
    with Scenario(gpus=2) as host:
        host.runs(1, on=(0,))
        host.waits(2, gpus=2)
        host.waits(3, 4)
        host.check(
            waits={2: NO_DEVICE, 3: RESERVED, 4: RESERVED},
            reserved=(2, (1, 0), None),
        )


def test_jobs_before_the_wide_one_are_not_held_back() -> None:
    with Scenario(gpus=2) as host:
        host.waits(1)
        host.waits(2, gpus=2)
        host.waits(3)
        host.check(starts={1: (0,)}, waits={2: NO_DEVICE, 3: RESERVED}, reserved=(2, (1, 0), None))


def test_wide_job_of_higher_priority_reserves_before_older_narrow_ones() -> None:
    with Scenario(gpus=2) as host:
        host.runs(1, on=(0,))
        host.waits(2)
        host.waits(3, gpus=2, priority=1)
        host.check(waits={3: NO_DEVICE, 2: RESERVED}, reserved=(3, (1, 0), None))


def test_reservation_takes_the_devices_that_are_free_soonest() -> None:
    with Scenario(gpus=4) as host:
        host.runs(1, on=(0,))
        host.runs(2, on=(1,), ends_by=90)
        host.runs(3, on=(2,), ends_by=30)
        host.runs(4, on=(3,), ends_by=60)
        host.waits(5, gpus=2)
        host.check(waits={5: NO_DEVICE}, reserved=(5, (2, 3), 60))


def test_reservation_without_known_ends_takes_the_longest_busy_device() -> None:
    with Scenario(gpus=3, now=100) as host:
        host.runs(1, on=(0,), since=50)
        host.runs(2, on=(1,), since=10)
        host.runs(3, on=(2,), since=30)
        host.waits(4, gpus=2)
        host.check(waits={4: NO_DEVICE}, reserved=(4, (1, 2), None))


def test_reservation_counts_jobs_that_start_in_the_same_tick() -> None:
    with Scenario(gpus=2, now=10) as host:
        host.waits(1, time_limit=50)
        host.waits(2, gpus=2)
        host.check(starts={1: (0,)}, waits={2: NO_DEVICE}, reserved=(2, (1, 0), 60))


def test_only_the_first_blocked_job_has_a_reservation() -> None:
    with Scenario(gpus=3) as host:
        host.runs(1, on=(0,), ends_by=10)
        host.runs(2, on=(1,), ends_by=20)
        host.waits(3, gpus=2)
        host.waits(4, gpus=3)
        host.check(waits={3: NO_DEVICE, 4: NO_DEVICE}, reserved=(3, (2, 0), 10))


def test_job_past_its_limit_counts_as_about_to_end() -> None:
    with Scenario(gpus=2, now=100) as host:
        host.runs(1, on=(0,), ends_by=90)
        host.waits(2, gpus=2)
        host.waits(3, time_limit=1)
        host.check(waits={2: NO_DEVICE, 3: RESERVED}, reserved=(2, (1, 0), 100))


# -- backfill ----------------------------------------------------------------------------------


def test_short_job_is_backfilled_before_the_reservation() -> None:
    with Scenario(gpus=2) as host:
        host.runs(1, on=(0,), ends_by=60)
        host.waits(2, gpus=2)
        host.waits(3, time_limit=60)
        host.check(starts={3: (1,)}, waits={2: NO_DEVICE}, reserved=(2, (1, 0), 60))


def test_job_that_would_end_too_late_is_not_backfilled() -> None:
    with Scenario(gpus=2) as host:
        host.runs(1, on=(0,), ends_by=60)
        host.waits(2, gpus=2)
        host.waits(3, time_limit=61)
        host.waits(4)
        host.check(
            waits={2: NO_DEVICE, 3: RESERVED, 4: RESERVED},
            reserved=(2, (1, 0), 60),
        )


def test_short_job_passes_a_long_one_that_must_wait() -> None:
    with Scenario(gpus=2) as host:
        host.runs(1, on=(0,), ends_by=60)
        host.waits(2, gpus=2)
        host.waits(3)
        host.waits(4, time_limit=10)
        host.check(starts={4: (1,)}, waits={2: NO_DEVICE, 3: RESERVED}, reserved=(2, (1, 0), 60))


def test_no_time_limit_is_short_enough_if_the_end_is_unknown() -> None:
    with Scenario(gpus=2) as host:
        host.runs(1, on=(0,))
        host.waits(2, gpus=2)
        host.waits(3, time_limit=1)
        host.check(waits={2: NO_DEVICE, 3: RESERVED}, reserved=(2, (1, 0), None))


# -- jobs beside the queue ---------------------------------------------------------------------


def test_cpu_jobs_start_despite_reservations() -> None:
    with Scenario(gpus=2) as host:
        host.runs(1, on=(0,))
        host.waits(2, gpus=2)
        host.waits(3, gpus=0)
        host.check(starts={3: ()}, waits={2: NO_DEVICE}, reserved=(2, (1, 0), None))


def test_cpu_jobs_fill_all_cpu_slots() -> None:
    with Scenario(cpu_slots=2) as host:
        host.runs(1)
        host.waits(2, 3, gpus=0)
        host.check(starts={2: ()}, waits={3: NO_CPU_SLOT})


def test_gpu_jobs_take_no_cpu_slot() -> None:
    with Scenario(gpus=1, cpu_slots=1) as host:
        host.runs(1, on=(0,))
        host.waits(2, gpus=0)
        host.check(starts={2: ()})


def test_blocked_cpu_job_blocks_no_gpu_job() -> None:
    with Scenario(gpus=1, cpu_slots=1) as host:
        host.runs(1)
        host.waits(2, gpus=0)
        host.waits(3)
        host.check(starts={3: (0,)}, waits={2: NO_CPU_SLOT})


def test_impossible_job_reserves_nothing_and_blocks_no_job() -> None:
    with Scenario(gpus=2) as host:
        host.waits(1, gpus=3)
        host.waits(2)
        host.waits(3, gpus=0)
        host.check(starts={2: (0,), 3: ()}, waits={1: IMPOSSIBLE})


def test_gpu_job_on_a_host_without_gpus_is_impossible() -> None:
    with Scenario() as host:
        host.waits(1)
        host.check(waits={1: IMPOSSIBLE})


def test_draining_starts_nothing() -> None:
    with Scenario(gpus=2, draining=True) as host:
        host.waits(1)
        host.waits(2, gpus=0)
        host.check(waits={1: DRAINING, 2: DRAINING})


# -- sharing -----------------------------------------------------------------------------------


def test_jobs_spread_over_gpus_before_a_gpu_is_shared() -> None:
    with Scenario(slots=(2, 2)) as host:
        host.waits(1, 2, 3, 4, 5)
        host.check(
            starts={1: (0,), 2: (1,), 3: (0,), 4: (1,)},
            waits={5: NO_DEVICE},
            reserved=(5, (0,), None),
        )


def test_wide_job_takes_the_emptiest_gpus() -> None:
    with Scenario(slots=(2, 2, 2)) as host:
        host.runs(1, on=(0,))
        host.waits(2, gpus=2)
        host.check(starts={2: (1, 2)})


def test_wide_job_never_gets_two_slots_of_one_gpu() -> None:
    with Scenario(slots=(2,)) as host:
        host.waits(1, gpus=2)
        host.check(waits={1: IMPOSSIBLE})


def test_second_slot_of_a_reserved_gpu_may_be_used() -> None:
    with Scenario(slots=(2, 1)) as host:
        host.runs(1, on=(1,))
        host.waits(2, gpus=2)
        host.waits(3, 4)
        host.check(starts={3: (0,)}, waits={2: NO_DEVICE, 4: RESERVED}, reserved=(2, (0, 1), None))


def test_shared_gpu_opens_when_its_first_job_ends() -> None:
    with Scenario(slots=(2, 2)) as host:
        host.runs(1, on=(0,), ends_by=90)
        host.runs(2, on=(0,), ends_by=30)
        host.runs(3, on=(1,), ends_by=50)
        host.runs(4, on=(1,))
        host.waits(5, gpus=2)
        host.check(waits={5: NO_DEVICE}, reserved=(5, (0, 1), 50))


# -- no starvation -----------------------------------------------------------------------------


class Stream:
    """One wide job, and behind it more narrow ones than the host can ever run."""

    def __init__(self, slots: tuple[int, ...], wide: int, limits: Iterator[float | None]) -> None:
        self.devices = tuple(a_device(number, count) for number, count in enumerate(slots))
        self.wide = a_waiting_job(1000, gpus=wide)
        self.ids = count(1)
        self.limits = limits
        self.now = 0.0
        self.running: list[RunningJob] = []
        # Older narrow jobs use all slots before the wide job is submitted.
        self.waiting = [self.narrow() for _ in range(sum(slots))]
        self.tick()
        self.ids = count(1001)
        self.waiting = [self.wide]

    def narrow(self) -> WaitingJob:
        return a_waiting_job(next(self.ids), time_limit=next(self.limits))

    def tick(self) -> bool:
        """Make one decision and apply it; returns whether the wide job starts."""
        waiting = {job.id: job for job in self.waiting}
        plan = decide(
            Snapshot(self.now, self.devices, 4, tuple(self.running), tuple(waiting.values()))
        )
        for start in plan.starts:
            limit = waiting[start.job].time_limit
            ends_by = None if limit is None else self.now + limit
            self.running.append(a_running_job(start.job, start.devices, ends_by, self.now))
            del waiting[start.job]
        self.waiting = list(waiting.values())
        return any(start.job == self.wide.id for start in plan.starts)

    def end(self, index: int) -> None:
        """End one of the narrow jobs that were submitted before the wide job.

        Only these use devices that the wide job waits for.
        """
        self.now += 1
        older = [job for job in self.running if job.id < self.wide.id]
        self.running.remove(older[index % len(older)])


@pytest.mark.parametrize("slots", [(1, 1), (1, 1, 1, 1), (2, 2, 2), (3, 1, 2, 1)])
@pytest.mark.parametrize("which", [0, -1, 1, 7], ids=["oldest", "newest", "second", "eighth"])
def test_wide_job_starts_in_bounded_ticks_under_an_endless_stream(
    slots: tuple[int, ...], which: int
) -> None:
    """Each end of a job gives the wide job a device that no other job takes."""
    for wide in range(2, len(slots) + 1):
        stream = Stream(slots, wide, limits=repeat(None))
        for _ in range(sum(slots) + 1):
            stream.waiting += [stream.narrow() for _ in range(10)]
            if stream.tick():
                break
            stream.end(which)
        else:
            pytest.fail(f"{wide} of {slots} starved")


@pytest.mark.parametrize("wide", [2, 3, 4])
def test_wide_job_starts_in_time_under_an_endless_stream_of_short_jobs(wide: int) -> None:
    """Backfill does not delay the wide job: it starts at its first forecast or earlier."""
    stream = Stream((1, 1, 1, 1), wide, limits=chain([5.0, 11.0, 23.0, 7.0], repeat(3.0)))
    promised: float | None = None
    while True:
        stream.waiting += [stream.narrow() for _ in range(4)]
        if promised is None:
            snapshot = Snapshot(
                0.0, stream.devices, 4, tuple(stream.running), tuple(stream.waiting)
            )
            reservation = decide(snapshot).reservation
            assert reservation is not None and reservation.at is not None
            promised = reservation.at
        if stream.tick():
            break
        stream.now = min(job.ends_by for job in stream.running if job.ends_by is not None)
        assert stream.now <= promised
        stream.running = [job for job in stream.running if job.ends_by != stream.now]
    assert stream.now <= promised


def test_same_snapshot_gives_the_same_plan() -> None:
    snapshot = Snapshot(
        0.0,
        tuple(a_device(number, 2) for number in range(4)),
        4,
        (a_running_job(1, (0, 1), 50), a_running_job(2, (2,))),
        tuple(a_waiting_job(id, id % 5, id % 3, float(id * 10)) for id in range(3, 30)),
    )
    assert decide(snapshot) == decide(snapshot)


# -- limits of fair-share groups ----------------------------------------------------------------


def test_fair_share_group_at_its_limit_does_not_block_other_groups() -> None:
    def job(id: int, fair_share_group: str) -> WaitingJob:
        return WaitingJob(id, 0, Request(1), fair_share_group=fair_share_group)

    seen = Snapshot(
        0.0, tuple(a_device(n) for n in range(6)), 4,
        (RunningJob(1, 1, Request(1), (0,), 0.0, fair_share_group="sweep:a"),),
        (job(2, "sweep:a"), job(3, "sweep:a"), job(4, "sweep:a"), job(5, ""), job(6, "sweep:b")),
        limits={"sweep:a": 2, "sweep:b": 9},
    )  # fmt: skip
    plan = decide(seen)
    assert sorted(start.job for start in plan.starts) == [2, 5, 6]
    assert plan.waits == {3: GROUP_LIMIT, 4: GROUP_LIMIT}
    assert explain_ready(seen.waiting[1], seen, plan, Place(0)) == [
        "sweep:a already has 2 running, which is its limit"
    ]


def test_fair_share_group_at_its_limit_reserves_no_device() -> None:
    wide = WaitingJob(2, 9, Request(2), fair_share_group="sweep:a")
    seen = Snapshot(
        0.0, (a_device(0), a_device(1)), 4,
        (RunningJob(1, 1, Request(1), (0,), 0.0, fair_share_group="sweep:a"),),
        (wide, WaitingJob(3, 0, Request(1))), limits={"sweep:a": 1},
    )  # fmt: skip
    plan = decide(seen)
    assert [start.job for start in plan.starts] == [3]
    assert plan.reservation is None
