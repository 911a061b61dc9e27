"""Forecasts of job starts, made with the policy."""

from __future__ import annotations

from stoker.engine.model import Device, Request, RunningJob, Snapshot, WaitingJob
from stoker.engine.policy.forecast import LikelyRun, forecast, likely_runs
from stoker.engine.profiles.estimates import Estimate, Estimates

GPUS = (Device(0, "0"), Device(1, "1"))
# Profile n takes n seconds.
ESTIMATES = Estimates({seconds: Estimate(float(seconds)) for seconds in (4, 50)})


def a_snapshot(*jobs: RunningJob | WaitingJob) -> Snapshot:
    running = tuple(job for job in jobs if isinstance(job, RunningJob))
    waiting = tuple(job for job in jobs if isinstance(job, WaitingJob))
    return Snapshot(100.0, GPUS, 2, running, waiting, estimates=ESTIMATES)


def runs(id: int, on: int, limit: float | None = None, profile: int = 0) -> RunningJob:
    ends_by = limit and 90.0 + limit
    return RunningJob(id, id, Request(1), (on,), 90.0, ends_by, profile=profile)


def test_job_that_can_start_starts_now() -> None:
    assert forecast(a_snapshot(WaitingJob(1, 0, Request(1)))) == {1: 0.0}


def test_job_starts_when_its_devices_are_likely_free() -> None:
    busy = (runs(1, 0, limit=30.0), runs(2, 1, profile=50))
    wide = WaitingJob(3, 0, Request(2))
    assert forecast(a_snapshot(*busy, wide)) == {3: 40.0}


def test_forecast_starts_the_jobs_in_front_first() -> None:
    busy = (runs(1, 0, limit=30.0), runs(2, 1, limit=40.0))
    first = [WaitingJob(id, 0, Request(1), time_limit=100.0) for id in (3, 4)]
    last = WaitingJob(5, 0, Request(1))
    assert forecast(a_snapshot(*busy, *first, last)) == {3: 20.0, 4: 30.0, 5: 120.0}


def test_likely_runs_have_the_gpus_starts_and_ends_of_the_forecast() -> None:
    busy = (runs(1, 0, limit=30.0), runs(2, 1))
    first = WaitingJob(3, 0, Request(1), time_limit=100.0)
    snapshot = a_snapshot(*busy, first, WaitingJob(4, 0, Request(1)))
    found = likely_runs(snapshot)
    assert found == [
        LikelyRun(1, (0,), 0.0, 20.0),
        LikelyRun(2, (1,), 0.0, None),
        LikelyRun(3, (0,), 20.0, 120.0),
        LikelyRun(4, (0,), 120.0, None),
    ]
    assert {run.job: run.start for run in found if run.job > 2} == forecast(snapshot)


def test_forecast_is_empty_without_known_ends() -> None:
    busy = (runs(1, 0), runs(2, 1))
    assert forecast(a_snapshot(*busy, WaitingJob(3, 0, Request(1)))) == {}


def test_end_by_the_progress_of_a_job_replaces_its_estimate() -> None:
    busy = (runs(1, 0, profile=50), runs(2, 1))
    waits = WaitingJob(3, 0, Request(1))
    assert forecast(a_snapshot(*busy, waits)) == {3: 40.0}
    assert forecast(a_snapshot(*busy, waits), ends_in={1: 7.0}) == {3: 7.0}


def test_job_past_its_estimate_is_expected_to_run_half_as_long_again() -> None:
    busy = (runs(1, 0, profile=4), runs(2, 1))
    assert forecast(a_snapshot(*busy, WaitingJob(3, 0, Request(1)))) == {3: 5.0}


def test_job_that_others_give_way_to_is_expected_after_their_grace_period() -> None:
    """The preemptible job leaves within ten seconds; the normal one has no known end."""
    preemptible = runs(1, 0)._replace(request=Request(1, preemptible=True))
    busy = (preemptible, runs(2, 1))
    queue = (WaitingJob(3, 0, Request(1)), WaitingJob(4, 0, Request(1)))
    assert forecast(a_snapshot(*busy, *queue)) == {3: 10.0}


def test_preemptible_job_is_expected_after_all_others() -> None:
    busy = (runs(1, 0, limit=30.0), runs(2, 1, limit=40.0))
    first = WaitingJob(3, 0, Request(1, preemptible=True), time_limit=100.0)
    second = WaitingJob(4, 0, Request(1), time_limit=100.0)
    assert forecast(a_snapshot(*busy, first, second)) == {4: 20.0, 3: 30.0}
