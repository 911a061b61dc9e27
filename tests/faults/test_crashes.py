"""Crashes without failpoints: all processes at once, reboots, PID reuse, mutual restarts."""

from __future__ import annotations

import os
import random
import select
import signal
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from stoker.engine.supervisor import job_processes, kill_processes, locks
from tests.faults.execution_log import ExecutionLog, finish_everything
from tests.lab import Lab

WAIT = "echo up; while [ ! -e {go} ]; do sleep 0.02; done; exit 7"


def _start(lab: Lab, *flags: str) -> int:
    """A job that runs until the file `go` appears, and then exits with 7."""
    job = lab.submit(*flags, WAIT.format(go=lab.folder / "go"))
    lab.wait_until(lambda: lab.run("log", str(job)).stdout == "up\n")
    lab.wait_until(lambda: lab.state(job) == "running")
    return job


def test_daemon_adopts_running_jobs_after_kill_9(lab: Lab) -> None:
    job = _start(lab)
    started = lab.job(job)["started_at"]
    lab.kill_daemon()
    (lab.folder / "go").touch()
    assert lab.wait(job) == 7
    assert lab.job(job)["attempts"] == 1
    assert lab.job(job)["started_at"] == started


def test_job_that_ends_while_no_daemon_is_running_keeps_its_exit_code(lab: Lab) -> None:
    job = _start(lab)
    lab.ok("daemon", "stop")
    (lab.folder / "go").touch()
    lab.wait_until(lambda: not lab.processes())
    before = lab.job(job)["state"]
    lab.ok("daemon", "start")
    assert lab.wait(job) == 7
    assert before == "running"


def test_killed_daemon_is_restarted_by_the_runner(lab: Lab) -> None:
    _start(lab)
    pid = lab.daemon_pid()
    lab.kill_daemon()
    lab.wait_until(lambda: lab.daemon_pid() not in (None, pid))


def test_daemon_that_cannot_start_is_retried_later(lab: Lab) -> None:
    """Row 26: it starts without a user once the problem is gone."""
    assert lab.wait(lab.submit("true")) == 0
    runner = lab.runner_pid()
    assert runner is not None
    os.kill(runner, signal.SIGSTOP)
    lab.kill_daemon()
    ours = locks.take(str(lab.state_dir), locks.DAEMON_LOCK)  # blocks the next daemon
    try:
        os.kill(runner, signal.SIGCONT)
        lab.wait_until(lambda: job_processes.children(runner))
        lab.wait_until(lambda: not job_processes.children(runner))
    finally:
        os.close(ours)
    lab.wait_until(lambda: lab.daemon_pid() is not None)


def test_killed_runner_is_restarted_and_its_jobs_keep_their_exit_codes(lab: Lab) -> None:
    """Row 13: the daemon becomes their parent, as the nearest subreaper."""
    job = _start(lab)
    lab.kill_runner()
    second = lab.submit("exit 3")
    (lab.folder / "go").touch()
    assert lab.wait(job) == 7
    assert lab.wait(second) == 3


def test_job_keeps_its_exit_code_when_it_ends_between_the_deaths_of_daemon_and_runner(
    lab: Lab,
) -> None:
    """The second daemon is not an ancestor of the job, and suspended while the job ends."""
    job = _start(lab)
    first = lab.daemon_pid()
    lab.kill_daemon()
    lab.wait_until(lambda: lab.daemon_pid() not in (None, first))
    lab.ok("ls")
    daemon = lab.daemon_pid()
    assert daemon is not None
    lab.wait_until(lambda: _has_pidfd(daemon))
    os.kill(daemon, signal.SIGSTOP)
    lab._kill(lab.runner_pid, signal.SIGKILL)
    (lab.folder / "go").touch()
    lab.wait_until(lambda: not lab.processes())
    os.kill(daemon, signal.SIGCONT)
    assert lab.wait(job) == 7
    assert lab.state(job) == "failed"


def _has_pidfd(daemon: int) -> bool:
    """Whether the daemon has opened a pidfd of a job."""
    for path in Path(f"/proc/{daemon}/fd").iterdir():
        try:
            if "pidfd" in os.readlink(path):
                return True
        except OSError:
            continue
    return False


def test_orphan_of_a_killed_runner_keeps_its_device_and_can_be_cancelled(
    new_lab: Callable[..., Lab],
) -> None:
    lab = new_lab(devices=1)
    job = _start(lab)
    lab.kill_runner()
    second = lab.submit("true")
    lab.wait_until(lambda: lab.runner_pid() is not None)
    assert lab.state(second) == "queued"
    lab.ok("cancel", str(job))
    assert lab.wait(job) == 128 + signal.SIGTERM
    assert lab.wait(second) == 0


def test_daemon_starts_again_after_the_socket_of_the_runner_was_removed(lab: Lab) -> None:
    go = lab.folder / "go"
    job = lab.submit("--gpus", "0", f"until test -e {go}; do sleep 0.01; done; exit 3")
    lab.wait_until(lambda: lab.state(job) == "running")
    runner, daemon = lab.runner_pid(), lab.daemon_pid()
    (lab.state_dir / "runner.sock").unlink()
    assert "the socket of the runner" in lab.run("doctor").stdout
    lab.kill_daemon()
    lab.wait_until(lambda: lab.daemon_pid() not in (None, daemon))
    go.touch()
    assert lab.wait(job) == 3
    assert lab.wait(lab.submit("--gpus", "0", "true")) == 0
    assert lab.runner_pid() == runner
    assert "the socket of the runner" not in lab.run("doctor").stdout


def test_job_killed_together_with_daemon_and_runner_is_lost(lab: Lab) -> None:
    """Row 15."""
    job = _start(lab)
    again = lab.submit("--restartable", f"echo ran >> {lab.folder}/again; sleep 60")
    lab.wait_until(lambda: (lab.folder / "again").exists())
    kill_everything(lab)
    lab.ok("daemon", "start")
    lab.wait_until(lambda: lab.state(job) == "lost")
    assert lab.job(job)["cause"] == "lost" and lab.job(job)["exit_code"] is None
    lab.wait_until(lambda: (lab.folder / "again").read_text() == "ran\nran\n")
    lab.wait_until(lambda: lab.job(again)["attempts"] == 2)


def test_restartable_job_that_is_lost_each_time_is_retried_a_limited_number_of_times(
    new_lab: Callable[..., Lab],
) -> None:
    lab = new_lab(devices=1, STOKER_RETRY_DELAY="0.01")
    job = lab.submit("--restartable", "kill -9 $PPID; kill -9 $$")
    lab.wait_until(lambda: lab.daemon_pid() and lab.state(job) in ("lost", "failed"))
    assert lab.job(job)["attempts"] <= 6


def kill_everything(lab: Lab) -> None:
    """Kill daemon, runner and jobs, as a logout or the OOM killer may."""
    daemon, runner, base = lab.daemon_pid(), lab.runner_pid(), lab.tag_base()
    assert daemon and runner and base
    for pid in (daemon, runner):
        os.kill(pid, signal.SIGSTOP)
    # The runner first: the exit of the daemon, a session leader, would wake it up.
    for pid in (runner, daemon):
        os.kill(pid, signal.SIGKILL)
    jobs = [process.pid for process in job_processes.all_processes(base)]
    kill_processes.kill_all(base, timeout=5)
    # Wait until init has reaped them: a zombie still has its exit code.
    lab.wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in jobs))
    lab.wait_until(lambda: lab.daemon_pid() is None and lab.runner_pid() is None)


def test_running_jobs_are_lost_and_the_queue_resumes_after_a_reboot(
    new_lab: Callable[..., Lab],
) -> None:
    """Row 16: the boot ID shows that the processes are dead, even if PIDs were reused."""
    lab = new_lab(devices=1)
    job = _start(lab)
    queued = lab.submit("exit 3")
    kill_everything(lab)
    lab.env["STOKER_BOOT_ID"] = "another-boot"
    lab.ok("daemon", "start")
    assert lab.wait(queued) == 3
    assert lab.state(job) == "lost"


def test_process_that_reuses_the_pid_of_a_job_is_neither_adopted_nor_signaled(lab: Lab) -> None:
    """Row 18: the database is changed to the PID of another process, this one."""
    job = _start(lab)
    kill_everything(lab)
    connection = sqlite3.connect(lab.state_dir / "queue.db")
    connection.execute("UPDATE attempts SET pid = ?", (os.getpid(),))
    connection.commit()
    connection.close()
    lab.ok("daemon", "start")
    lab.wait_until(lambda: lab.state(job) == "lost")  # and this process was not killed


def test_suspended_daemon_loses_nothing_and_enforces_no_limit_wrongly(lab: Lab) -> None:
    """Row 19."""
    job = _start(lab, "--time-limit", "1h")
    daemon = lab.daemon_pid()
    assert daemon
    os.kill(daemon, signal.SIGSTOP)
    queued = lab.submit("exit 3")
    assert f"the daemon is suspended; `kill -CONT {daemon}` continues it" in lab.ok(
        "why", str(queued)
    )
    assert lab.ok("daemon", "status").startswith("daemon is suspended (pid ")
    (lab.folder / "go").touch()
    lab.wait_until(lambda: not lab.processes())
    os.kill(daemon, signal.SIGCONT)
    assert lab.wait(job) == 7 and lab.wait(queued) == 3


def test_suspended_job_can_be_cancelled(lab: Lab) -> None:
    """Row 20: a suspended process does not handle SIGTERM."""
    job = _start(lab)
    for pid in lab.processes():
        with suppress(ProcessLookupError):  # the job may have started a short-lived program
            os.kill(pid, signal.SIGSTOP)
    lab.ok("cancel", str(job))
    assert lab.wait(job) == 128 + signal.SIGTERM


@pytest.mark.timeout(600)  # starts 80 daemons
def test_three_hundred_jobs_survive_random_kills(new_lab: Callable[..., Lab]) -> None:
    """Row 10: the daemon dies again and again at random instants while 300 jobs run."""
    lab = new_lab(devices=4)
    chance = random.Random(20261115)
    execution_log = ExecutionLog(lab)
    lines = "\n".join(execution_log.command(n, chance.choice([0.0, 0.1, 0.6])) for n in range(300))
    ids = [int(line) for line in lab.ok("submit", "-q", "--file", "-", input=lines).split()]
    kills = 0
    while kills < 80:  # on a busy host, a daemon may die before it has started a job
        lab.run("daemon", "start")  # the runner delays restarts after five crashes in a minute
        _pause(chance.uniform(0.0, 0.15))
        pid = lab.daemon_pid()
        if pid is not None and pid > 1:
            os.kill(pid, signal.SIGKILL)
            kills += 1
    finish_everything(lab)
    execution_log.check(dict(enumerate(ids)))


def _pause(seconds: float) -> None:
    """Let the daemon run for a random time."""
    select.select([], [], [], seconds)
