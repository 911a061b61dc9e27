"""Kill the daemon or the runner at every point of the protocol, at its first passes.

Rows 1-6, 8, 11-14 of the fault matrix: every job runs once, its exit code is true, and only a job
that was being started or ended when its parent died may be `lost`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.execution_log import ExecutionLog, finish_everything
from tests.lab import Lab, wait_until

DAEMON_POINTS = (
    "daemon.after_claim",
    "daemon.after_launch",
    "daemon.before_finish",
    "daemon.before_commit",
    "daemon.after_commit",
    "daemon.during_recovery",
)
RUNNER_POINTS = (
    "runner.before_begun",
    "runner.after_begun",
    "runner.after_spawn",
    "runner.after_exit",
    "runner.after_ended",
)


def _crash(
    new_lab: Callable[..., Lab], point: str, nth: int
) -> tuple[Lab, ExecutionLog, dict[int, int]]:
    lab = new_lab(devices=2)
    once = Path(lab.folder / "once")
    once.touch()
    lab.env |= {"STOKER_FAILPOINT": f"{point}:{nth}", "STOKER_FAILPOINT_ONCE": str(once)}
    execution_log = ExecutionLog(lab)
    lines = "\n".join(execution_log.command(number, 0.02) for number in range(6))
    ids = [int(line) for line in lab.ok("submit", "-q", "--file", "-", input=lines).split()]
    finish_everything(lab)
    assert not once.exists(), f"{point} was never passed {nth} times"
    return lab, execution_log, dict(enumerate(ids))


@pytest.mark.parametrize("nth", [1, 2, 5])
@pytest.mark.parametrize("point", DAEMON_POINTS)
def test_no_job_is_lost_or_runs_twice_when_the_daemon_dies_at(
    new_lab: Callable[..., Lab], point: str, nth: int
) -> None:
    if point == "daemon.during_recovery":
        nth = 1  # a daemon recovers once
    _, execution_log, numbers = _crash(new_lab, point, nth)
    execution_log.check(numbers)


@pytest.mark.parametrize("nth", [1, 2, 5])
@pytest.mark.parametrize("point", RUNNER_POINTS)
def test_only_jobs_being_started_or_ended_are_lost_when_the_runner_dies_at(
    new_lab: Callable[..., Lab], point: str, nth: int
) -> None:
    lab, execution_log, numbers = _crash(new_lab, point, nth)
    # Only jobs that the runner was starting or ending may be lost. Both devices may have been freed
    # at once, so there may be two exits.
    unrecorded = {"runner.after_begun": 1, "runner.after_spawn": 1, "runner.after_exit": 2}
    may_be_lost = unrecorded.get(point, 0)
    lost = execution_log.check(numbers, may_be_lost=may_be_lost)
    assert all(lab.job(id)["cause"] == "lost" for id in lost)


def test_dependents_are_released_once_when_the_daemon_dies_after_a_job_ended(
    new_lab: Callable[..., Lab],
) -> None:
    for point in ("daemon.before_commit", "daemon.after_commit"):
        for nth in (2, 3, 4):
            lab = new_lab(devices=1)
            once = lab.folder / "once"
            once.touch()
            lab.env |= {"STOKER_FAILPOINT": f"{point}:{nth}", "STOKER_FAILPOINT_ONCE": str(once)}
            execution_log = ExecutionLog(lab)
            first = lab.submit("--hold", execution_log.command(0))
            second = lab.submit("--after", str(first), execution_log.command(4))
            third = lab.submit("--after", f"{first}:notok", execution_log.command(8))
            lab.ok("release", str(first))
            finish_everything(lab)
            execution_log.check({0: first, 4: second})
            assert lab.job(third)["cause"] == "dependency"
            assert execution_log.counts()[8] == 0
            lab.close()


def test_kill_of_a_job_is_completed_after_the_daemon_died_during_it(
    new_lab: Callable[..., Lab],
) -> None:
    """Row 7: before the stop order reaches the runner, and between SIGTERM and SIGKILL."""
    for point in ("daemon.before_stop", "runner.after_sigterm"):
        lab = new_lab(devices=1)
        once = lab.folder / "once"
        once.touch()
        lab.env |= {"STOKER_FAILPOINT": f"{point}:1", "STOKER_FAILPOINT_ONCE": str(once)}
        stubborn = "trap '' TERM; echo up; while :; do sleep 0.05; done"
        job = lab.submit("--grace", "0.3", stubborn)
        wait_for_log(lab, job, "up\n")
        lab.ok("cancel", str(job))
        finish_everything(lab)
        assert not once.exists()
        assert lab.state(job) == "cancelled"
        assert not lab.processes()


def wait_for_log(lab: Lab, job: int, text: str) -> None:
    wait_until(lambda: lab.state(job) == "running" and lab.log(job) == text)


def test_killed_client_submits_all_jobs_or_none_and_a_retry_makes_no_duplicates(
    new_lab: Callable[..., Lab],
) -> None:
    """Rows 8 and 51."""
    for point, left in (("submit.before_commit", 0), ("submit.after_commit", 5)):
        lab = new_lab(devices=1)
        lines = "\n".join("true" for _ in range(5))
        args = ("submit", "-q", "--hold", "--dedupe", "key", "--file", "-")
        died = lab.run(*args, input=lines, STOKER_FAILPOINT=f"{point}:1")
        assert died.returncode == -9
        assert len(lab.states()) == left
        assert len(lab.ok(*args, input=lines).split()) == 5
        assert len(lab.states()) == 5


def test_schema_is_complete_or_absent_when_the_client_that_creates_it_dies(
    new_lab: Callable[..., Lab],
) -> None:
    """Row 9."""
    for nth in (1, 7, 14):
        lab = new_lab(devices=1)
        died = lab.run("submit", "true", STOKER_FAILPOINT=f"migrate.between_statements:{nth}")
        assert died.returncode == -9
        job = lab.submit("true")
        assert job == 1 and lab.wait(job) == 0
        lab.close()
