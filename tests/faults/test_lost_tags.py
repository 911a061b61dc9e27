"""Jobs whose processes lose their tag: Stoker inside Stoker, `su`, `ulimit -x`, orphans.

All of them are found and killed, and no job ends while one of its processes is alive.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stoker.engine.supervisor import kill_processes
from stoker.engine.supervisor.kill_processes import KillRetries
from stoker.engine.supervisor.process_table import Process, read_process, zombie_status
from tests.faults.execution_log import finish_everything
from tests.helpers import is_alive
from tests.lab import Lab, wait_until

STOKER = f"{shlex.quote(sys.executable)} -m stoker"
SIMPLE = f"{shlex.quote(sys.executable)} -m stoker.compat.simple_gpu_scheduler.main"
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="su to another user needs root")


@pytest.fixture(autouse=True)
def place() -> Iterator[Path]:
    """A world-writable folder, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="stoker-tags-") as name:
        os.chmod(name, 0o777)
        yield Path(name)


def _sleeper(place: Path, name: str) -> str:
    """A command that writes its PID to a file and sleeps."""
    script = place / f"{name}.sh"
    script.write_text(
        f"echo $$ > {place}/{name}.new; mv {place}/{name}.new {place}/{name}.pid\nexec sleep 300\n"
    )
    return f"sh {script}"


def _pid(place: Path, name: str) -> int:
    path = place / f"{name}.pid"
    wait_until(path.exists, what=f"{name} has not started")
    return int(path.read_text())


def _nested_run(lab: Lab, place: Path) -> str:
    return f"{STOKER} run --log-dir {lab.folder}/inner --devices 0 {_sleeper(place, 'inner')}"


def _commands(lab: Lab, place: Path) -> dict[str, str]:
    run = _nested_run(lab, place)
    return {
        "nested run": run,
        "nested run behind a shell": f"true; {run}; true",
        "simple_gpu_scheduler": f"echo '{_sleeper(place, 'inner')}' | {SIMPLE} --gpus 0 1",
        "ulimit": f"bash -c 'ulimit -x unlimited; {_sleeper(place, 'inner')}'",
        "ulimit in the background": (
            f"bash -c 'ulimit -x unlimited; setsid {_sleeper(place, 'inner')} & wait'"
        ),
        "su": f"su nobody -s /bin/sh -c '{_sleeper(place, 'inner')}'",
        "su behind a shell": f"true; su nobody -s /bin/sh -c '{_sleeper(place, 'inner')}'; true",
    }


KINDS = [
    "nested run", "nested run behind a shell", "simple_gpu_scheduler", "ulimit",
    "ulimit in the background", pytest.param("su", marks=needs_root),
    pytest.param("su behind a shell", marks=needs_root),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_cancel_ends_every_process_of_a_job_that_lost_its_tag(
    lab: Lab, place: Path, kind: str
) -> None:
    job = lab.submit("--gpus", "0", _commands(lab, place)[kind])
    inner = _pid(place, "inner")
    lab.ok("cancel", "--now", str(job))
    lab.wait(job)
    assert lab.state(job) == "cancelled"
    assert not is_alive(inner)


@pytest.mark.parametrize("kind", KINDS)
def test_time_limit_ends_every_process_of_a_job_that_lost_its_tag(
    lab: Lab, place: Path, kind: str
) -> None:
    job = lab.submit(
        "--gpus", "0", "--time-limit", "2s", "--grace", "0.2", _commands(lab, place)[kind]
    )
    inner = _pid(place, "inner")
    lab.wait(job)
    assert lab.job(job)["cause"] == "time_limit"
    assert not is_alive(inner)


@pytest.mark.parametrize("kind", KINDS)
def test_job_that_lost_its_tag_is_adopted_after_kill_9_of_daemon_and_runner(
    lab: Lab, place: Path, kind: str
) -> None:
    job = lab.submit("--gpus", "0", "--restartable", _commands(lab, place)[kind])
    inner = _pid(place, "inner")
    wait_until(lambda: lab.job(job)["pid"])
    _kill_both(lab)
    lab.ok("daemon", "start")
    wait_until(lambda: lab.daemon_pid() is not None)
    lab.wait_until(lambda: lab.state(job) == "running")
    assert lab.job(job)["attempts"] == 1
    assert is_alive(inner)
    lab.ok("cancel", "--now", str(job))
    lab.wait(job)
    assert lab.state(job) == "cancelled"
    assert not is_alive(inner)


def _kill_both(lab: Lab) -> None:
    daemon, runner = lab.daemon_pid(), lab.runner_pid()
    assert daemon and runner
    os.kill(daemon, signal.SIGSTOP)
    for pid in (runner, daemon):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: lab.daemon_pid() is None and lab.runner_pid() is None)


def test_inner_run_that_is_killed_leaves_its_jobs_to_the_outer_job(lab: Lab, place: Path) -> None:
    """The inner cleanup process is killed as well, so only the outer job can kill the rest."""
    job = lab.submit("--gpus", "0", f"{_nested_run(lab, place)} & wait; sleep 300")
    inner = _pid(place, "inner")
    parent = int(Path(f"/proc/{inner}/stat").read_text().rpartition(")")[2].split()[1])
    for pid in _children(parent):
        if pid != inner:
            os.kill(pid, signal.SIGKILL)  # the cleanup process of the inner run
    os.kill(parent, signal.SIGKILL)
    assert is_alive(inner)
    lab.ok("cancel", "--now", str(job))
    lab.wait(job)
    assert not is_alive(inner)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_exit_code_survives_a_runner_that_dies_while_leftovers_run(
    new_lab: Callable[..., Lab], place: Path
) -> None:
    lab = new_lab(devices=1)
    once = lab.folder / "once"
    once.touch()
    lab.env |= {"STOKER_FAILPOINT": "runner.after_exited:1", "STOKER_FAILPOINT_ONCE": str(once)}
    job = lab.submit(f"setsid {_sleeper(place, 'left')} & "
                     f"while [ ! -e {place}/left.pid ]; do sleep 0.01; done; "
                     "exit 3")  # fmt: skip
    finish_everything(lab)
    assert not once.exists()
    assert (lab.state(job), lab.job(job)["exit_code"]) == ("failed", 3)
    assert not is_alive(_pid(place, "left"))


def test_process_in_its_own_session_is_not_taken_for_the_job_that_started_it(
    new_lab: Callable[..., Lab], place: Path
) -> None:
    """The runner dies at the start, and the job ends before the daemon searches it."""
    lab = new_lab(devices=1)
    once = lab.folder / "once"
    once.touch()
    lab.env |= {"STOKER_FAILPOINT": "runner.after_spawn:1", "STOKER_FAILPOINT_ONCE": str(once)}
    job = lab.submit(f"setsid {_sleeper(place, 'left')} & exit 3")
    finish_everything(lab)
    assert not once.exists()
    assert lab.job(job)["exit_code"] in (3, None)
    assert lab.state(job) in ("failed", "lost")


@pytest.mark.parametrize("both", [False, True])
def test_exit_code_survives_kill_9_while_a_leftover_ignores_sigterm(
    lab: Lab, place: Path, both: bool
) -> None:
    stubborn = lab.folder / "stubborn.sh"
    stubborn.write_text(f"trap '' TERM; echo $$ > {place}/left.pid\n"
                        "while :; do sleep 0.1; done\n")  # fmt: skip
    job = lab.submit(f"setsid sh {stubborn} & "
                     f"while [ ! -s {place}/left.pid ]; do sleep 0.01; done; "
                     "exit 3")  # fmt: skip
    wait_until(lambda: "exited" in _journal(lab))
    if both:
        _kill_both(lab)
        lab.ok("daemon", "start")
    else:
        lab.kill_runner()
    assert lab.wait(job) == 3
    assert (lab.state(job), lab.job(job)["exit_code"]) == ("failed", 3)
    assert not is_alive(_pid(place, "left"))


def _journal(lab: Lab) -> str:
    return "".join(
        path.read_bytes().partition(b"\0")[0].decode() for path in lab.state_dir.glob("journal-*")
    )


@needs_root
def test_process_of_another_user_is_reported_as_one_that_cannot_be_killed() -> None:
    sleeper = subprocess.Popen(["sleep", "300"])
    process = read_process(sleeper.pid)
    assert process is not None
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setuid(65534)
            os.write(writing, kill_processes.why_alive([process]).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    sleeper.kill()
    sleeper.wait()
    assert text == f"process {sleeper.pid} (sleep) belongs to another user and cannot be killed"


def test_survivors_are_killed_again_with_a_backoff_and_new_processes_soon() -> None:
    one, other = (
        Process(pid=pid, parent=1, session=pid, state="R", threads=1, started=100) for pid in (7, 8)
    )
    retries = KillRetries()
    assert retries.pause([one]) < 1.0
    pauses = [retries.pause([one]) for _ in range(8)]
    assert pauses == sorted(pauses) and pauses[0] >= 1.0 and pauses[-1] == pauses[-2] == 60.0
    assert retries.pause([other]) < 1.0
    assert retries.failures == 0


def test_zombie_has_a_wait_status_until_it_is_reaped() -> None:
    for command, status in (("exit 7", 7 << 8), ("kill -9 $$", 9), ("exit 0", 0)):
        child = subprocess.Popen(["sh", "-c", command])
        started = read_process(child.pid)
        assert started is not None
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert zombie_status(child.pid, started.started) == status
        assert zombie_status(child.pid, started.started + 1) is None
        child.wait()
        assert zombie_status(child.pid, started.started) is None
