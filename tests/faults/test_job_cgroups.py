"""Cgroups find processes that have lost every other link to their job."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from stoker.supervisor.job_cgroups import JobCgroups
from tests.helpers import is_alive
from tests.lab import Lab, wait_until


@pytest.fixture(autouse=True)
def needs_cgroups(tmp_path: Path) -> None:
    cgroups = JobCgroups.create(str(tmp_path), 0xFA1AFE1)
    is_possible = (tmp_path / "cgroups").exists()
    cgroups.close()
    if not is_possible:
        pytest.skip("this user cannot create cgroups here (needs a delegated cgroup v2, or root)")


def _start(lab: Lab) -> tuple[int, int]:
    """(job, PID of its process that dropped its tag, environment, session and parents)"""
    file, script = lab.folder / "pid", lab.folder / "sleep.sh"
    script.write_text(f"echo $$ > {file}.new; mv {file}.new {file}; exec sleep 300\n")
    vanish = f"exec prlimit --locks=unlimited setsid env -i /bin/sh -c '/bin/sh {script} &'"
    job = lab.submit(
        "--gpus", "0",
        "until grep -q stoker- /proc/$$/cgroup; do sleep 0.01; done\n"
        f'/bin/sh -c "{vanish}"\nsleep 300',
    )  # fmt: skip
    wait_until(file.exists)
    return job, int(file.read_text())


def test_cancel_kills_a_process_that_is_known_only_by_its_cgroup(lab: Lab) -> None:
    job, pid = _start(lab)
    assert is_alive(pid)
    lab.ok("cancel", "--now", str(job))
    lab.wait(job)
    assert lab.state(job) == "cancelled"
    assert not is_alive(pid)


def test_daemon_kills_a_process_that_is_known_only_by_its_cgroup_after_the_runner_died(
    lab: Lab,
) -> None:
    job, pid = _start(lab)
    assert is_alive(pid)
    runner = lab.runner_pid()
    assert runner is not None
    os.kill(runner, signal.SIGKILL)
    wait_until(lambda: lab.runner_pid() not in (None, runner))
    assert lab.state(job) == "running"
    lab.ok("cancel", "--now", str(job))
    lab.wait(job)
    assert not is_alive(pid)


def test_cgroups_of_ended_jobs_are_removed(lab: Lab) -> None:
    job = lab.submit("--gpus", "0", "until grep -q stoker- /proc/$$/cgroup; do sleep 0.01; done")
    assert lab.wait(job) == 0
    place = Path((lab.state_dir / "cgroups").read_text().split()[-1])
    wait_until(lambda: not [path for path in place.iterdir() if path.is_dir()])
