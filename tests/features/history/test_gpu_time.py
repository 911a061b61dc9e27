"""Sums of the recorded intervals of a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from stoker.features.history.gpu_time import GpuTime, Interval, add_up


def interval(since: float, until: float, kind: str = "busy", **facts: Any) -> Interval:
    return Interval("GPU-1", since, until, kind, (), "", 0)._replace(**facts)


def test_time_before_the_first_record_is_unknown() -> None:
    assert add_up([], 0, 100) == GpuTime(unknown=100)
    assert add_up([interval(40, 100)], 0, 100) == GpuTime(busy=60, unknown=40)


def test_time_without_records_is_time_without_stoker() -> None:
    found = add_up([interval(0, 10), interval(30, 40, "idle")], 0, 100)
    assert found == GpuTime(busy=10, idle=10, off=80)


def test_reasons_are_added_up_and_sorted_by_time() -> None:
    waits = [
        interval(0, 10, "waiting", reason="drained"),
        interval(10, 40, "waiting", reason="reserved for job 25"),
        interval(40, 45, "waiting", reason="drained"),
    ]
    found = add_up(waits, 0, 45)
    assert found.reasons == (("reserved for job 25", 30.0), ("drained", 15.0))
    assert found.waiting == 45


def test_jobs_are_those_that_started_and_those_that_ran_before() -> None:
    first = interval(0, 50, jobs=(1, 2), starts=2)
    second = interval(50, 60, jobs=(3,), starts=1)
    assert add_up([first, second], 10, 60).jobs == 3
    assert add_up([first, second], 0, 60).jobs == 3
    assert add_up([first, second], 55, 60).jobs == 1


def test_job_that_continues_after_a_restart_of_the_daemon_counts_once() -> None:
    found = add_up([interval(0, 50, jobs=(1,), starts=1), interval(51, 60, jobs=(1,))], 0, 60)
    assert (found.jobs, found.off) == (1, 1)


def test_overlapping_intervals_count_once() -> None:
    found = add_up([interval(0, 50), interval(20, 60, "idle")], 0, 60)
    assert found == GpuTime(busy=50, idle=10)


@pytest.mark.parametrize("since", [0.0, 10.0, 45.0, 99.0])
def test_all_parts_add_up_to_the_whole_time(since: float) -> None:
    intervals = [interval(20, 30), interval(30, 31, "others"), interval(40, 50, "waiting")]
    found = add_up(intervals, since, 100)
    assert sum(found[:6]) == 100 - since
