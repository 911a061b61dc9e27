"""CPU time and memory of a job are right, also after its runner was killed."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from tests.lab import Lab, wait_until

_CPU_SECONDS = 0.6
_TICKS = 0.05  # samples count in clock ticks of 10 ms
_MEMORY = 90 << 20
_PROGRAM = f"""
import os, time
memory = b'x' * {_MEMORY}
while time.process_time() < {_CPU_SECONDS}: pass
print('used', flush=True)
while not os.path.exists('go'): time.sleep(0.02)
"""


def _kill_runner(lab: Lab) -> None:
    lab.kill_runner()


def _kill_both(lab: Lab) -> None:
    """The runner first: the daemon's death makes init the parent of its jobs."""
    lab.kill_runner()
    lab.kill_daemon()
    lab.run("daemon", "start")


@pytest.mark.parametrize("kill", [_kill_runner, _kill_both])
@pytest.mark.parametrize("command", ["{python} program.py", "{python} program.py; true"])
def test_use_of_a_job_is_known_after_its_runner_was_killed(
    lab: Lab, kill: Callable[[Lab], None], command: str
) -> None:
    (lab.folder / "program.py").write_text(_PROGRAM)
    job = lab.submit(command.format(python=sys.executable))
    wait_until(lambda: "used" in lab.log(job))
    kill(lab)
    # A daemon adopts the job, and samples it, before it starts another one.
    assert lab.wait(lab.submit("--gpus", "0", "true")) == 0
    lab.wait_until(lambda: lab.state(job) == "running")
    (lab.folder / "go").touch()
    assert lab.wait(job) == 0
    shown = lab.job(job)
    assert shown["user_seconds"] + shown["system_seconds"] >= _CPU_SECONDS - _TICKS
    assert shown["max_rss_bytes"] >= _MEMORY


def test_use_of_a_job_is_known_if_its_runner_died_while_its_leftovers_ran(lab: Lab) -> None:
    text = f"import subprocess\n{_PROGRAM}\nsubprocess.Popen(['sh', '-c', \"{_LEFTOVER}\"])\n"
    (lab.folder / "program.py").write_text(text)
    job = lab.submit("--", sys.executable, "program.py")
    (lab.folder / "go").touch()
    wait_until((lab.folder / "left").exists)
    wait_until(lambda: lab.job(job)["pid"] is None or _is_gone(lab.job(job)["pid"]))
    lab.kill_runner()
    lab.wait(job)
    shown = lab.job(job)
    assert shown["state"] == "done"
    assert shown["user_seconds"] + shown["system_seconds"] >= _CPU_SECONDS - _TICKS
    assert shown["max_rss_bytes"] >= _MEMORY


_LEFTOVER = "trap '' TERM; touch left; while :; do sleep 0.05; done"


def _is_gone(pid: int) -> bool:
    from stoker.engine.supervisor.process_table import process_state

    return process_state(pid) in ("", "Z")
