"""Hundreds of histories full of crashes, full disks, locks, clock jumps and reboots.

Each test runs a block of seeds; a failure names the seed, and `python -m tests.simulation SEED`
prints its history. Seeds that failed once go to
test_known_seeds.py.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from stoker.engine.daemon import job_starter
from stoker.engine.daemon.job_starter import JobStarter
from stoker.engine.daemon.loop import Loop
from stoker.engine.model import Start
from stoker.engine.policy import decide, preemption
from stoker.engine.policy.placement import DevicePool
from stoker.engine.store.profiles import Profiles
from stoker.engine.supervisor.messages import RunnerEvent
from tests.simulation.daemon import SimRunnerClient
from tests.simulation.runner import Runner
from tests.simulation.simulator import run
from tests.simulation.world import Record, Violation

_BLOCK = 25


def _blocks(first: int, end: int, release: int) -> list[Any]:
    """The first seeds of blocks; those from `release` on run before a release only."""
    return [
        pytest.param(seed, marks=pytest.mark.release if seed >= release else ())
        for seed in range(first, end, _BLOCK)
    ]


def _run_block(
    first: int, tmp_path: Path, jobs: int = 80, seeds: int = _BLOCK, preemptible: float = 0.0
) -> Counter[str]:
    total: Counter[str] = Counter()
    for seed in range(first, first + seeds):
        total += run(seed, str(tmp_path / str(seed)), jobs, preemptible).counts
    return total


@pytest.mark.parametrize("first", _blocks(0, 150, release=75))
def test_invariants_hold_through_all_faults(first: int, tmp_path: Path) -> None:
    counts = _run_block(first, tmp_path)
    # Make sure that the simulation was not idle.
    assert counts["spawns"] > 500
    assert counts["daemon deaths"] > 20
    assert counts["runner deaths"] > 5
    assert counts["decisions compared"] > 100
    assert counts["GPUs checked"] > 100


@pytest.mark.parametrize("first", _blocks(0, 75, release=50))
def test_invariants_hold_with_preemptible_jobs(first: int, tmp_path: Path) -> None:
    """Every job ends, no job runs twice, and vacated GPUs are not used by other jobs (I10)."""
    counts = _run_block(first, tmp_path, preemptible=0.4)
    assert counts["preemptions"] > 20


@pytest.mark.parametrize("first", _blocks(30_000, 30_050, release=30_025))
def test_invariants_hold_on_hosts_that_count_cores_and_memory(first: int, tmp_path: Path) -> None:
    counts = _run_block(first, tmp_path)
    assert counts["host claims checked"] > 300
    assert counts["decisions compared"] > 100


@pytest.mark.parametrize("first", _blocks(10_000, 10_050, release=10_000))
def test_invariants_hold_in_many_more_histories(first: int, tmp_path: Path) -> None:
    _run_block(first, tmp_path)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("jobs", [500, pytest.param(2_000, marks=pytest.mark.release)])
def test_invariants_hold_with_many_jobs(tmp_path: Path, jobs: int) -> None:
    assert run(20_001, str(tmp_path), jobs=jobs).jobs >= jobs


def test_seed_always_gives_the_same_history(tmp_path: Path) -> None:
    once = run(7, str(tmp_path / "once"))
    again = run(7, str(tmp_path / "again"))
    assert (once.steps, once.counts) == (again.steps, again.counts)


def test_journal_that_loses_records_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty: list[Record] = []
    monkeypatch.setattr(SimRunnerClient, "journal", lambda client: empty)
    with pytest.raises(Violation, match="seed"):
        _run_block(0, tmp_path)


def test_loop_that_keeps_old_estimates_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Profiles, "changed", lambda profiles, id: None)
    with pytest.raises(Violation, match="I8: the estimate of profile"):
        _run_block(0, tmp_path, seeds=200)


def test_loop_that_does_not_decide_again_as_time_passes_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_starter, "DECIDE_AGAIN_SECONDS", 1e6)
    with pytest.raises(Violation, match=r"I[89]: .*the daemon sleeps until"):
        _run_block(0, tmp_path, seeds=200)


def test_loop_that_leaves_a_gpu_idle_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that starts one job for each decision, although others could start as well."""
    claim_all = JobStarter._claim_all

    def claim_first(starter: JobStarter, starts: tuple[Start, ...]) -> int:
        claim_all(starter, starts[:1])
        return len(starts)

    monkeypatch.setattr(JobStarter, "_claim_all", claim_first)
    with pytest.raises(Violation, match=r"I9: GPU [0-9, ]+ is idle while job [0-9, ]+ may run"):
        _run_block(0, tmp_path)


def test_loop_that_ignores_a_free_gpu_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that does not decide again when a job ends."""

    def receive(loop: Loop, events: list[RunnerEvent]) -> None:
        may_start = loop._state.may_start
        receive_all(loop, events)
        loop._state.may_start = may_start

    receive_all = Loop.receive
    monkeypatch.setattr(Loop, "receive", receive)
    with pytest.raises(Violation, match=r"I9: GPU [0-9, ]+ is idle while job [0-9, ]+ may run"):
        _run_block(0, tmp_path)


def test_job_that_is_asked_again_too_early_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preemption, "MIN_RUN_SECONDS", 0.0)
    with pytest.raises(Violation, match=r"I10: .*is asked to give way again"):
        _run_block(0, tmp_path, preemptible=0.4)


def test_loop_that_keeps_no_gpus_for_the_job_that_needs_them_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither are GPUs kept while others leave, nor does the job come first when they have left."""
    monkeypatch.setattr(DevicePool, "keep", lambda *args: False)
    monkeypatch.setattr(decide, "_class_of", lambda job: 2 if job.request.preemptible else 1)
    with pytest.raises(Violation, match=r"I10: job \d+ starts on GPUs .*, kept for job"):
        _run_block(0, tmp_path, preemptible=0.4, seeds=100)


def test_runner_that_rolls_the_journal_before_it_reports_starts_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Runner, "reports_starts_before_rolling", False)
    monkeypatch.setattr(Runner, "rolls", 0.5)
    with pytest.raises(Violation, match="seed"):
        _run_block(0, tmp_path, seeds=200)
