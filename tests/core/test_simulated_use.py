"""Simulated measurements follow the jobs on a GPU, and are the same for the same time."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.core.gpus.gpu_time import Interval, cover
from stoker.core.gpus.simulated_readings import simulated_readings, steady_times
from stoker.core.gpus.simulated_use import JobOnGpu, simulated_memory, simulated_use

GIB = 1 << 30
TOTAL = 80 * GIB
JOBS = st.builds(
    JobOnGpu,
    st.integers(1, 10**9),
    st.floats(0, 1e6),
    st.none() | st.integers(0, TOTAL),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(JOBS, max_size=6), st.floats(0, 2e6))
def test_simulated_values_are_possible_values(jobs: list[JobOnGpu], at: float) -> None:
    found = simulated_use("SIM-3", TOTAL, jobs, at)
    assert 0 <= found.utilisation <= 100
    assert 0 <= found.memory <= TOTAL
    assert 50 < found.power < 450
    assert 20 < found.temperature < 90
    assert (found.utilisation == 0 and found.memory == 0) or jobs
    for job in jobs:
        assert simulated_memory(job, TOTAL, at) <= (TOTAL if job.memory is None else job.memory)


def test_history_of_a_simulated_gpu_follows_what_ran_on_it() -> None:
    some = [
        Interval("SIM-0", 100, 400, "busy", (7,), "", 1),
        Interval("SIM-0", 400, 500, "idle", (), "", 0),
    ]
    known = {7: JobOnGpu(7, 98.0, 20 * GIB)}
    blocks = cover(some, 0, 700)
    found = dict(simulated_readings("SIM-0", TOTAL, blocks, known, [50, 300, 450, 600]))
    assert sorted(found) == [300, 450]  # nothing before the records and while Stoker was off
    assert found[300] == simulated_use("SIM-0", TOTAL, [known[7]], 300)
    assert found[300].utilisation > 0
    assert found[450].utilisation == 0


def test_history_does_not_depend_on_the_range_that_is_shown() -> None:
    some = [Interval("SIM-0", 100, 900, "busy", (7,), "", 1)]
    known = {7: JobOnGpu(7, 99.0, None)}
    whole = dict(simulated_readings("SIM-0", TOTAL, cover(some, 0, 900), known, [500, 600]))
    part = dict(simulated_readings("SIM-0", TOTAL, cover(some, 450, 900), known, [500, 600]))
    assert whole == part
    assert set(steady_times(0, 1000, 50)) >= set(steady_times(400, 1000, 50)[:3]) & {400.0}
