"""`limits = "enforce"`: --cpus and --mem become limits of a cgroup.

Where this user cannot create cgroups with the controllers `memory` and `cpu`, a folder with the
files of a cgroup takes their place, and the jobs report what the kernel would.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stoker.features.memory_limits.limit_cgroups import find_problem
from tests.lab import Lab, wait_until

MIB = 1 << 20


@pytest.fixture
def cgroup(tmp_path: Path) -> Path:
    folder = tmp_path / "cgroup"
    folder.mkdir()
    (folder / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (folder / "cgroup.procs").write_text("")
    return folder


@pytest.fixture
def limited(new_lab: Callable[..., Lab], cgroup: Path) -> Lab:
    return new_lab(STOKER_LIMITS="enforce", STOKER_CGROUP=str(cgroup))


def limits_of(cgroup: Path, attempt: int) -> dict[str, str]:
    (folder,) = cgroup.glob(f"stoker-*.limits/{attempt}")
    return {file.name: file.read_text() for file in folder.iterdir()}


# Waits until the processes of the first attempt are in its cgroup.
ENTER = (
    "until test -e {cgroup}/stoker-*.limits/1/cgroup.procs; do sleep 0.01; done; "
    "cd {cgroup}/stoker-*.limits; "
)
KILLED = ENTER + "echo 'oom 1\noom_kill 1' > 1/memory.events; kill -9 $$"


def test_declared_cores_and_memory_are_limits(limited: Lab, cgroup: Path) -> None:
    job = limited.submit("--cpus", "2", "--mem", "100M", "sleep 300")
    limited.wait_until(lambda: limited.state(job) == "running")
    pid = limited.job(job)["pid"]
    assert limits_of(cgroup, 1) == {
        "memory.max": str(100 * MIB), "memory.oom.group": "1", "cpu.max": "200000 100000",
        "cgroup.procs": str(pid),
    }  # fmt: skip
    assert (cgroup / "cgroup.subtree_control").read_text() == "+memory +cpu"


def test_only_what_is_declared_is_limited(limited: Lab, cgroup: Path) -> None:
    jobs = [
        limited.submit("--cpus", "1", "true"), limited.submit("--mem", "1G", "true"),
        limited.submit("--mem", "auto", "true"), limited.submit("true"),
    ]  # fmt: skip
    assert limited.wait(*jobs) == 0
    assert "memory.max" not in limits_of(cgroup, 1) and "cpu.max" in limits_of(cgroup, 1)
    assert "memory.max" in limits_of(cgroup, 2) and "cpu.max" not in limits_of(cgroup, 2)
    (place,) = cgroup.glob("stoker-*.limits")
    assert sorted(one.name for one in place.iterdir() if one.is_dir()) == ["1", "2"]


def test_job_that_exceeds_its_memory_has_its_own_cause(limited: Lab, cgroup: Path) -> None:
    job = limited.submit("--mem", "100M", "--retries", "2", KILLED.format(cgroup=cgroup))
    assert limited.wait(job) != 0
    shown = limited.job(job)
    assert shown["state"] == "failed"
    assert shown["cause"] == "memory_limit"
    assert shown["result"] == "memory limit"
    assert shown["detail"] == "it used more than 100 MiB of memory, its limit (--mem)"
    assert shown["attempts"] == 1  # a retry would exceed it too


def test_cause_is_known_after_the_runner_was_killed(limited: Lab, cgroup: Path) -> None:
    go = limited.folder / "go"
    wait = f"until test -e {go}; do sleep 0.01; done; "
    job = limited.submit("--mem", "100M", wait + KILLED.format(cgroup=cgroup))
    limited.wait_until(lambda: limited.state(job) == "running")
    runner = limited.runner_pid()
    assert runner is not None
    os.kill(runner, signal.SIGKILL)
    wait_until(lambda: limited.runner_pid() not in (None, runner))
    go.touch()
    limited.wait(job)
    assert limited.job(job)["cause"] == "memory_limit"


def test_job_killed_by_another_process_has_no_memory_cause(limited: Lab) -> None:
    job = limited.submit("--mem", "100M", "kill -9 $$")
    limited.wait(job)
    assert limited.job(job)["cause"] == "signal"


def test_foreground_run_limits_its_jobs(limited: Lab, cgroup: Path) -> None:
    done = limited.run("run", "--cpus", "3", "true")
    assert done.returncode == 0
    assert limits_of(cgroup, 1)["cpu.max"] == "300000 100000"


def test_doctor_says_whether_limits_are_enforced(limited: Lab, cgroup: Path) -> None:
    said = limited.run("doctor").stdout
    assert f"--cpus and --mem are limits, in the cgroup `{cgroup}`" in said
    (cgroup / "cgroup.controllers").write_text("cpu pids\n")
    said = limited.run("doctor").stdout
    assert f"not enforced: the cgroup `{cgroup}` lacks the controller `memory`" in said
    assert "set `cgroup`" in said
    said = limited.run("doctor", STOKER_LIMITS="off").stdout
    assert '--cpus and --mem are reserved, not enforced (limits = "off")' in said


def test_job_runs_without_limits_where_there_is_no_cgroup(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(STOKER_LIMITS="enforce", STOKER_CGROUP="/no/such/cgroup")
    assert lab.wait(lab.submit("--cpus", "1", "--mem", "1G", "true")) == 0
    assert "`/no/such/cgroup` is not a cgroup of version 2" in lab.run("doctor").stdout


def test_invalid_value_of_limits_is_refused(lab: Lab) -> None:
    done = lab.run("ls", STOKER_LIMITS="maybe")
    assert done.returncode == 2
    assert "STOKER_LIMITS has the invalid value `maybe`" in done.stderr


def test_cgroup_with_other_processes_is_not_used(limited: Lab, cgroup: Path) -> None:
    """They would have to move: only leaves of a tree with controllers may have processes."""
    (cgroup / "cgroup.type").write_text("domain\n")
    (cgroup / "cgroup.procs").write_text("1\n")
    said = limited.run("doctor").stdout
    assert f"the cgroup `{cgroup}` has processes that are not Stoker's, e.g. 1" in said
    assert limited.wait(limited.submit("--cpus", "1", "true")) == 0
    assert not list(cgroup.glob("stoker-*.limits/*"))


@pytest.fixture
def real_cgroup() -> Iterator[Path]:
    """A new cgroup below the root, for root on a host with version 2 only."""
    path = Path("/sys/fs/cgroup") / f"stoker-test-{os.getpid()}"
    if find_problem(str(path.parent)) is not None:
        pytest.skip("this user cannot limit processes (needs root and cgroups of version 2)")
    path.mkdir()
    yield path
    for folder in sorted((one for one in path.rglob("*") if one.is_dir()), reverse=True):
        folder.rmdir()
    path.rmdir()


def test_kernel_limits_memory_and_cores(new_lab: Callable[..., Lab], real_cgroup: Path) -> None:
    lab = new_lab(STOKER_LIMITS="enforce", STOKER_CGROUP=str(real_cgroup))
    grow = f"{sys.executable} -c 'x = bytearray(400 << 20)'"
    small, large = lab.submit("--mem", "600M", grow), lab.submit("--mem", "100M", grow)
    assert lab.wait(small) == 0
    assert lab.wait(large) != 0
    assert lab.job(large)["cause"] == "memory_limit"
    enter = "until grep -q limits /proc/self/cgroup; do sleep 0.01; done; "
    show = "cat /sys/fs/cgroup$(sed s/^0::// /proc/self/cgroup)/cpu.max"
    job = lab.submit("--cpus", "2", enter + show)
    assert lab.wait(job) == 0
    assert lab.log(job) == "200000 100000\n"
