"""The kernel kills a job, or another process, for lack of memory (row 24)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.engine.supervisor.oom_kills import count_oom_kills, read_killed
from tests.lab import Lab

CONTROLLERS = (  # where a cgroup with a limit can be created, and the name of the limit
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
    ("/sys/fs/cgroup", "memory.max"),
)
ALLOCATE = "x = bytearray(200 << 20)"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A cgroup with little memory."""
    for parent, limit in CONTROLLERS:
        path = Path(parent) / f"stoker-test-{os.getpid()}"
        try:
            path.mkdir()
        except OSError:
            continue
        if (path / limit).exists():
            (path / limit).write_text(str(32 << 20))
            yield path
            path.rmdir()
            return
        path.rmdir()
    pytest.skip("this user cannot limit memory (needs root and a memory controller)")


def allocating(cgroup: Path) -> str:
    return f"echo $$ > {cgroup}/cgroup.procs; exec {sys.executable} -S -c '{ALLOCATE}'"


def test_job_that_the_kernel_killed_for_its_memory_has_that_cause(lab: Lab, small: Path) -> None:
    if read_killed(0.0) is None:
        pytest.skip("the kernel's log cannot be read")
    job = lab.submit("--gpus", "0", allocating(small))
    assert lab.wait(job) == 137
    shown = lab.job(job)
    assert (shown["cause"], shown["signal"]) == ("host_oom", 9)
    assert shown["detail"] == "killed by the kernel because the host ran out of memory"


def test_kill_of_another_process_for_its_memory_is_not_the_cause_of_a_job(
    lab: Lab, small: Path
) -> None:
    fifo = lab.folder / "go"
    os.mkfifo(fifo)
    job = lab.submit("--gpus", "0", f"read -r _ < {fifo}; kill -9 $$")
    lab.wait_until(lambda: lab.state(job) == "running")
    before = count_oom_kills()
    assert subprocess.run(["sh", "-c", allocating(small)]).returncode == -9
    assert count_oom_kills() > before
    fifo.write_text("\n")
    assert lab.wait(job) == 137
    shown = lab.job(job)
    assert (shown["cause"], shown["signal"]) == ("signal", 9)
    if read_killed(0.0) is not None:
        assert shown["detail"] is None
