"""When running jobs and sets of jobs likely end."""

from __future__ import annotations

from stoker.engine.policy.finish_forecast import Finish, Interval, Work, finish_forecast
from stoker.text.progress.progress_number import (
    Remaining,
    StepReport,
    WorkDone,
    remaining_time,
    work_done,
)


def test_progress_counts_more_than_earlier_jobs() -> None:
    half = WorkDone(50, 100)
    assert remaining_time(elapsed=60, work=half, estimate=600) == Remaining(60, "progress")


def test_first_percent_of_the_work_counts_less_than_earlier_jobs() -> None:
    start = WorkDone(1, 100)
    assert remaining_time(elapsed=60, work=start, estimate=600) == Remaining(540, "profile")
    assert remaining_time(elapsed=60, work=start) == Remaining(5940, "progress")


def test_resumed_job_is_not_judged_by_work_of_an_earlier_attempt() -> None:
    most = WorkDone(90, 100)
    known = remaining_time(elapsed=10, work=most, is_resumed=True, estimate=600)
    assert known == Remaining(590, "profile")


def test_speed_of_the_newest_reports_counts_most() -> None:
    steps = (StepReport(900, 5), StepReport(910, 15))
    work = WorkDone(910, 1000)
    known = remaining_time(elapsed=20, work=work, steps=steps, is_resumed=True, estimate=600)
    assert known == Remaining(85, "progress")


def test_steps_in_another_unit_than_the_progress_are_ignored() -> None:
    steps = (StepReport(100, 5), StepReport(900, 15))
    epochs = WorkDone(1, 2)
    assert remaining_time(elapsed=20, work=epochs, steps=steps) == Remaining(20, "progress")


def test_time_since_the_last_report_is_subtracted() -> None:
    known = remaining_time(elapsed=70, work=WorkDone(50, 100), work_at=60)
    assert known == Remaining(50, "progress")
    late = remaining_time(elapsed=500, work=WorkDone(50, 100), work_at=60)
    assert late == Remaining(0, "progress")


def test_time_limit_is_a_bound() -> None:
    known = remaining_time(elapsed=60, estimate=600, limit=100)
    assert known == Remaining(40, "profile")
    only = remaining_time(elapsed=60, limit=100)
    assert only is not None and only.is_bound
    assert remaining_time(elapsed=60) is None


def test_job_past_its_estimate_runs_for_half_of_its_time_again() -> None:
    assert remaining_time(elapsed=100, estimate=60) == Remaining(50, "profile")


def test_text_without_a_total_has_no_fraction() -> None:
    for text in ("step 7", "step 7/0", "epoch 2 step 7"):
        known = work_done(text)
        assert known is None or known.fraction is None
    more = work_done("1200/1000")
    assert more is not None and more.fraction == 1.0


def test_set_of_jobs_ends_with_its_last_job() -> None:
    running = [Interval(0, 60), Interval(0, 90)]
    assert finish_forecast(running, [Interval(60, 100)], []) == Finish(160)


def test_jobs_without_a_forecast_are_divided_among_those_that_run_at_a_time() -> None:
    running = [Interval(0, 50), Interval(0, 50)]
    assert finish_forecast(running, [], [Work(10, 100)]) == Finish(550)
    # The jobs before them start later: nothing of the set runs before.
    assert finish_forecast([], [Interval(1000, 100)], [Work(9, 100)]) == Finish(2000)


def test_set_with_a_job_of_unknown_duration_has_no_end() -> None:
    assert finish_forecast([Interval(0, None)], [], []) is None
    assert finish_forecast([Interval(0, 10)], [], [Work(1, None)]) is None
    assert finish_forecast([], [], [Work(1, 10)]) is None


def test_end_from_a_time_limit_is_a_bound() -> None:
    assert finish_forecast([Interval(0, 10, True)], [], []) == Finish(10, True)
    assert finish_forecast([Interval(0, 10)], [], [Work(1, 10, True)]) == Finish(20, True)
