"""Traces in virtual time, with the policy of the daemon."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.engine.model import Rules
from stoker.engine.profiles.estimates import Estimate
from stoker.features.simulate.replay import ReplayProfiles, Result, TraceJob, replay

FIFO = Rules(backfill=False, short_first=False, is_fair=False)
SHORT_FIRST = Rules(is_fair=False)


def run(jobs: list[TraceJob], devices: int, rules: Rules, known: bool = True) -> Result:
    """With the true durations as estimates, or with none."""
    jobs = [job._replace(profile=job.id) for job in jobs]
    profiles = {job.id: Estimate(job.seconds) for job in jobs} if known else {}
    return replay(jobs, devices, rules, ReplayProfiles(profiles))


def test_jobs_that_fit_do_not_wait() -> None:
    jobs = [TraceJob(1, 0, 10, 2), TraceJob(2, 0, 10, 2)]
    assert run(jobs, 4, FIFO) == Result([0.0, 0.0], 10.0, 1.0)


def test_jobs_in_strict_order_never_overtake() -> None:
    jobs = [TraceJob(1, 0, 10, 3), TraceJob(2, 1, 10, 4), TraceJob(3, 2, 1, 1)]
    assert run(jobs, 4, FIFO).waits == [0.0, 9.0, 18.0]


def test_short_job_is_backfilled_before_a_wide_one() -> None:
    jobs = [TraceJob(1, 0, 10, 3), TraceJob(2, 1, 10, 4), TraceJob(3, 2, 1, 1)]
    rules = Rules(short_first=False, is_fair=False)
    assert run(jobs, 4, rules).waits == [0.0, 9.0, 0.0]
    assert run(jobs, 4, rules, known=False).waits == [0.0, 9.0, 18.0]


def test_short_jobs_first_makes_waits_shorter_on_average() -> None:
    jobs = [TraceJob(1, 0, 100, 1), TraceJob(2, 1, 100, 1), TraceJob(3, 2, 10, 1)]
    assert run(jobs, 1, FIFO).waits == [0.0, 99.0, 198.0]
    assert run(jobs, 1, SHORT_FIRST).waits == [0.0, 109.0, 98.0]


def test_endless_stream_of_short_jobs_does_not_starve_a_long_one() -> None:
    """Four devices, five jobs at any time, and one that is long: it runs all the same."""
    stream = [TraceJob(id, id * 2.0, 10.0, 1) for id in range(2, 2000)]
    jobs = [TraceJob(1, 0.0, 50.0, 4), TraceJob(2000, 1.0, 500.0, 1), *stream]
    for patience, wait in ((100.0, 110.0), (1000.0, 1010.0)):
        rules = Rules(is_fair=False, patience=patience)
        waits = dict(zip([job.id for job in jobs], run(jobs, 4, rules).waits, strict=True))
        assert patience <= waits[2000] <= wait


TRACES = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 30), st.integers(1, 4)), min_size=1, max_size=25
)


@given(TRACES, st.sampled_from([FIFO, SHORT_FIRST, Rules(short_first=False)]), st.booleans())
def test_every_job_runs_and_no_device_is_used_twice_at_once(
    trace: list[tuple[int, int, int]], rules: Rules, known: bool
) -> None:
    jobs = [TraceJob(id, float(a), float(b), c) for id, (a, b, c) in enumerate(trace)]
    result = run(jobs, 4, rules, known)
    assert len(result.waits) == len(jobs) and all(wait >= 0 for wait in result.waits)
    starts = [(job.submit + wait, job) for job, wait in zip(jobs, result.waits, strict=True)]
    for at, _ in starts:
        assert sum(j.gpus for s, j in starts if s <= at < s + j.seconds) <= 4
    used = sum(job.seconds * job.gpus for job in jobs)
    assert result.utilization == pytest.approx(used / (result.makespan * 4))


# -- preemptible jobs ----------------------------------------------------------------------------


def test_preemptible_job_gives_way_and_continues_where_it_was_stopped() -> None:
    jobs = [TraceJob(1, 0, 100, 1, preemptible=True), TraceJob(2, 30, 10, 1)]
    result = run(jobs, 1, SHORT_FIRST)
    assert (result.waits, result.makespan, result.preemptions) == ([10.0, 0.0], 110.0, 1)


def test_preemptible_job_that_gave_way_runs_for_a_while_before_it_does_so_again() -> None:
    stream = [TraceJob(id, 10.0 * id, 5.0, 1) for id in range(2, 12)]
    result = run([TraceJob(1, 0, 300, 1, preemptible=True), *stream], 1, SHORT_FIRST)
    assert result.preemptions == 2  # at 20 s, and 60 s after it started again
    assert max(result.waits[1:]) > 30


def test_only_as_many_preemptible_jobs_give_way_as_needed() -> None:
    jobs = [TraceJob(id, 0, 100, 1, preemptible=True) for id in (1, 2, 3, 4)]
    result = run([*jobs, TraceJob(5, 10, 10, 2)], 4, SHORT_FIRST)
    assert (result.preemptions, sorted(result.waits)) == (2, [0.0, 0.0, 0.0, 10.0, 10.0])


@st.composite
def _mixed(draw: st.DrawFn) -> list[TraceJob]:
    return [
        TraceJob(
            id,
            draw(st.integers(0, 300)),
            draw(st.integers(1, 200)),
            draw(st.integers(1, 4)),
            preemptible=draw(st.booleans()),
        )
        for id in range(1, draw(st.integers(2, 14)))
    ]


@given(_mixed())
def test_all_jobs_end_and_normal_ones_gain_from_preemption(jobs: list[TraceJob]) -> None:
    result = run(jobs, 4, SHORT_FIRST)
    assert len(result.waits) == len(jobs) and min(result.waits, default=0.0) >= 0.0
    busy = sum(job.seconds * job.gpus for job in jobs)
    assert result.utilization <= 1.0 + 1e-9
    assert busy <= result.makespan * 4 + 1e-6
    normal = [job for job in jobs if not job.preemptible]
    if len(normal) == 1:  # it waits only for jobs that gave way a short time before
        alone = run(normal, 4, SHORT_FIRST).waits
        waits = dict(zip([job.id for job in jobs], result.waits, strict=True))
        assert waits[normal[0].id] == alone[0] == 0.0
