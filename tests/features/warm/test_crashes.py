"""Kill the fork server, the runner or the daemon at every step of a warm start.

Every job runs once with its own exit code. Only a job that the runner was starting when it was
killed may be `lost`, as after a cold start.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.execution_log import ExecutionLog, finish_everything
from tests.features.warm.helpers import notes, servers, write_modules
from tests.lab import Lab, wait_until

_PROGRAM = """
import os, sys, time
number = int(sys.argv[1])
with open('executions', 'a') as file: file.write(f'{number}\\n')
time.sleep(0.02)
sys.exit(number % 4)
"""
SERVER_POINTS = (
    "server.before_imports", "server.before_ready", "server.before_fork", "server.after_fork",
)  # fmt: skip
RUNNER_POINTS = {  # how many jobs may be lost
    "runner.after_warm_request": 0,
    "runner.before_go": 1,
    "runner.after_go": 1,
    "runner.after_exit": 2,
    "runner.after_ended": 0,
}
DAEMON_POINTS = ("daemon.after_claim", "daemon.after_launch", "daemon.before_finish")


def _crash(
    new_lab: Callable[..., Lab], point: str, nth: int, *flags: str
) -> tuple[Lab, ExecutionLog, dict[int, int]]:
    lab = new_lab(devices=2)
    lab.env["PYTHONPATH"] = str(write_modules(lab.folder))
    once = Path(lab.folder / "once")
    once.touch()
    lab.env |= {"STOKER_FAILPOINT": f"{point}:{nth}", "STOKER_FAILPOINT_ONCE": str(once)}
    execution_log = ExecutionLog(lab)
    (lab.folder / "program.py").write_text(_PROGRAM)
    options = " ".join(("--warm=heavy", *flags))
    lines = [f"{sys.executable} program.py {number}  #stoker {options}" for number in range(6)]
    made = lab.ok("submit", "-q", "--file", "-", input="\n".join(lines))
    ids = [int(line) for line in made.split()]
    finish_everything(lab)
    assert not once.exists(), f"{point} was never passed {nth} times"
    return lab, execution_log, dict(enumerate(ids))


@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize("point", SERVER_POINTS)
def test_no_job_is_lost_or_runs_twice_when_the_fork_server_dies_at(
    new_lab: Callable[..., Lab], point: str, nth: int
) -> None:
    if point in ("server.before_imports", "server.before_ready"):
        nth = 1  # once in the life of a process
    lab, execution_log, numbers = _crash(new_lab, point, nth)
    execution_log.check(numbers)
    assert any(notes(lab, job) for job in numbers.values()) or point == "server.after_fork"


@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize("point", RUNNER_POINTS)
def test_no_job_runs_twice_when_the_runner_dies_at(
    new_lab: Callable[..., Lab], point: str, nth: int
) -> None:
    lab, execution_log, numbers = _crash(new_lab, point, nth)
    lost = execution_log.check(numbers, may_be_lost=RUNNER_POINTS[point])
    assert all(lab.job(job)["cause"] == "lost" for job in lost)


@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize("point", DAEMON_POINTS)
def test_no_job_is_lost_or_runs_twice_when_the_daemon_dies_at(
    new_lab: Callable[..., Lab], point: str, nth: int
) -> None:
    _, execution_log, numbers = _crash(new_lab, point, nth)
    execution_log.check(numbers)


def test_restartable_job_that_was_being_started_runs_once_after_the_runner_died(
    new_lab: Callable[..., Lab],
) -> None:
    _, execution_log, numbers = _crash(new_lab, "runner.before_go", 1, "--restartable")
    execution_log.check(numbers)


def test_process_that_is_killed_before_its_program_ends_only_its_own_job(
    new_lab: Callable[..., Lab],
) -> None:
    lab, execution_log, numbers = _crash(new_lab, "job.before_go", 1)
    killed = {n: job for n, job in numbers.items() if lab.job(job)["signal"] == signal.SIGKILL}
    assert len(killed) == 1
    assert not killed.keys() & execution_log.counts().keys()
    execution_log.check({n: job for n, job in numbers.items() if n not in killed})


def test_stopped_fork_server_does_not_hold_jobs_back_forever(lab: Lab) -> None:
    lab.env["PYTHONPATH"] = str(write_modules(lab.folder))
    first = lab.submit("--warm=heavy", "--", sys.executable, "-c", "pass")
    lab.wait(first)
    (server,) = servers(lab)
    os.kill(server, signal.SIGSTOP)
    second = lab.submit("--warm=heavy", "--", sys.executable, "-c", "print('ran')")
    assert lab.wait(second) == 0
    assert lab.log(second) == "ran\n"
    assert notes(lab, second) == ["the fork server did not answer within 15 s"]
    wait_until(lambda: server not in servers(lab))


def test_warm_jobs_survive_restarts_of_daemon_and_runner(lab: Lab) -> None:
    lab.env["PYTHONPATH"] = str(write_modules(lab.folder))
    text = "import os, time\nprint('up', flush=True)\n"
    text += "while not os.path.exists('go'): time.sleep(0.02)\nraise SystemExit(3)\n"
    (lab.folder / "program.py").write_text(text)
    job = lab.submit("--warm=heavy", "--", sys.executable, "program.py")
    wait_until(lambda: "up" in lab.log(job))
    pid = lab.job(job)["pid"]
    lab.kill_daemon()
    wait_until(lambda: lab.daemon_pid() is not None)
    lab.kill_runner()
    wait_until(lambda: lab.state(job) == "running" and lab.runner_pid() is not None)
    assert lab.job(job)["pid"] == pid
    (lab.folder / "go").touch()
    lab.wait(job)
    assert (lab.state(job), lab.job(job)["exit_code"]) == ("failed", 3)
