"""A GPU that is idle while a job could run is counted; with the real policy that never happens."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cli.helpers import as_json
from tests.lab import Lab

_DAEMON = Path(__file__).with_name("broken_daemon.py")


@contextmanager
def daemon_with_broken_policy(lab: Lab, mark: Path) -> Iterator[Path]:
    """A daemon that starts no job while the file `mark` exists; its log."""
    log = lab.folder / "broken.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, str(_DAEMON), str(mark)], env=lab.env, stdout=output, stderr=output
        )
    try:
        lab.wait_until(lambda: lab.daemon_pid() == process.pid)
        yield log
    finally:
        process.terminate()
        process.wait()


def idle_count(lab: Lab) -> dict[str, Any]:
    found: dict[str, Any] = as_json(lab.ok("gpus", "--json"))["idle_with_runnable_job"]
    return found


def test_gpu_that_is_idle_while_a_job_could_run_is_counted(lab: Lab) -> None:
    mark = lab.folder / "broken"
    mark.touch()
    lab.ok("daemon", "stop")
    with daemon_with_broken_policy(lab, mark):
        job = lab.submit("true")
        lab.wait_until(lambda: idle_count(lab)["seconds"] > 0.3)
        assert idle_count(lab)["occasions"] == 1
        assert lab.state(job) == "queued"
        doctor = lab.run("doctor").stdout
        assert "a GPU was idle once while a job could run" in doctor
        assert "hint: this is a defect of Stoker" in doctor
        mark.unlink()
        assert lab.wait(job) == 0


def test_missed_job_without_a_gpu_is_not_counted_as_idle_gpu(lab: Lab) -> None:
    mark = lab.folder / "broken"
    mark.touch()
    lab.ok("daemon", "stop")
    with daemon_with_broken_policy(lab, mark) as log:
        job = lab.submit("--gpus", "0", "true")
        lab.wait_until(lambda: f"missed: job {job}" in log.read_text())
        mark.unlink()
        assert lab.wait(job) == 0
        assert idle_count(lab) == {"occasions": 0, "seconds": 0.0}


def test_no_idle_time_is_counted_with_the_real_policy(lab: Lab) -> None:
    lab.ok("submit", "-q", "-f", "-", input="true\n" * 50)
    lab.submit("-G", "2", "true")
    assert lab.wait() == 0
    assert idle_count(lab) == {"occasions": 0, "seconds": 0.0}
    assert "no GPU was idle while a job could run" in lab.run("doctor").stdout
