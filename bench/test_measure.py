"""Figures of hand-written stamp logs with known results."""

from __future__ import annotations

import math

from bench.measure import (
    Stamp,
    figures,
    first_started,
    idle_share,
    invalid_reasons,
    parse_stamps,
    peak_concurrency,
    percentile,
    rate_since,
    slot_clashes,
    slot_gaps,
    steady_rate,
)
from bench.workload import STAMP_WIDTH

MS = 1_000_000


def a_stamp(job: int, start_ms: int, end_ms: int, slot: int = -1) -> Stamp:
    return Stamp(job, start_ms * MS, end_ms * MS, 100 + job, slot)


# Two slots, four jobs of 10 ms; the second pair starts 2 and 4 ms after a slot became free.
TWO_ROUNDS = [
    a_stamp(0, 0, 10, 0),
    a_stamp(1, 1, 11, 1),
    a_stamp(2, 12, 22, 0),
    a_stamp(3, 15, 25, 1),
]


def test_stamp_line_has_the_width_that_the_harness_counts_by() -> None:
    line = f"{7:10d} {10:20d} {20:20d} {42:10d} {3:4d}\n"
    assert len(line) == STAMP_WIDTH
    assert parse_stamps(line) == [Stamp(7, 10, 20, 42, 3)]


def test_peak_counts_jobs_that_overlap() -> None:
    assert peak_concurrency(TWO_ROUNDS) == 2
    assert peak_concurrency([*TWO_ROUNDS, a_stamp(4, 5, 20)]) == 3


def test_job_that_starts_when_another_ends_does_not_raise_the_peak() -> None:
    assert peak_concurrency([a_stamp(0, 0, 10), a_stamp(1, 10, 20)]) == 1


def test_gaps_pair_the_kth_end_with_the_kth_refill() -> None:
    assert slot_gaps(TWO_ROUNDS, 2) == [2 * MS, 4 * MS]


def test_fewer_jobs_than_slots_leave_no_gaps() -> None:
    assert slot_gaps(TWO_ROUNDS, 8) == []
    assert math.isnan(figures(TWO_ROUNDS, 8, 0).gap_p50_ms)


def test_rates_count_from_the_first_start_and_from_the_typed_command() -> None:
    assert steady_rate(TWO_ROUNDS) == 4 / 0.025
    assert rate_since(TWO_ROUNDS, -25 * MS) == 4 / 0.050


def test_idle_share_is_the_slot_time_without_a_job() -> None:
    assert math.isclose(idle_share(TWO_ROUNDS, 2), 1 - 40 / 50)


def test_two_jobs_on_one_slot_at_once_are_a_clash() -> None:
    assert slot_clashes(TWO_ROUNDS) == 0
    assert slot_clashes([*TWO_ROUNDS, a_stamp(4, 24, 30, 1)]) == 1


def test_unnumbered_slots_cannot_clash() -> None:
    assert slot_clashes([a_stamp(0, 0, 10), a_stamp(1, 0, 10)]) == 0


def test_percentile_is_one_of_the_measured_values() -> None:
    values = [float(n) for n in range(1, 101)]
    assert percentile(values, 50) == 50
    assert percentile(values, 99) == 99
    assert percentile([3.0], 99) == 3


def test_first_started_goes_by_start_not_by_end() -> None:
    late_end = a_stamp(9, 0, 99)
    assert first_started([*TWO_ROUNDS, late_end], 2) == [TWO_ROUNDS[0], late_end]


def test_valid_run_has_no_faults() -> None:
    assert invalid_reasons(figures(TWO_ROUNDS, 2, 0), 4, 2) == []


def test_lost_duplicate_and_too_many_jobs_are_faults() -> None:
    assert len(invalid_reasons(figures(TWO_ROUNDS, 2, 0), 5, 2)) == 1
    doubled = [*TWO_ROUNDS[:3], TWO_ROUNDS[2]._replace(start=30 * MS, end=40 * MS)]
    assert "3 different" in invalid_reasons(figures(doubled, 2, 0), 4, 2)[0]
    assert "on 1 slots" in invalid_reasons(figures(TWO_ROUNDS, 1, 0), 4, 1)[0]
