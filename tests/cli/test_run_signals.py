"""Ctrl-C, SIGTERM, SIGUSR1 and kill -9 of a foreground run: no job outlives it."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys

import pytest

from tests.helpers import Gate, is_alive
from tests.lab import Lab, wait_until


def start(lab: Lab, gate: Gate, count: int = 4, before: str = "") -> subprocess.Popen[str]:
    """Start a run on two devices; two jobs are running when this returns."""
    (lab.folder / "jobs.txt").write_text(f"{before}{gate.wait}\n" * count)
    run = lab.popen("run", "-l", "logs", "jobs.txt")
    gate.wait_for(2)
    knows_of(lab, 2)
    return run


def knows_of(lab: Lab, count: int) -> None:
    """Wait until the run has recorded this number of running jobs."""

    def running() -> bool:
        connection = sqlite3.connect(lab.folder / "logs" / "queue.db")
        try:
            rows = connection.execute("SELECT count(*) FROM jobs WHERE state = 'running'")
            return bool(rows.fetchone()[0] == count)
        finally:
            connection.close()

    wait_until(running, what=f"{count} running jobs in the database")


def gone(pids: list[int]) -> None:
    wait_until(lambda: not any(map(is_alive, pids)), what=f"the end of {pids}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1])
def test_one_ctrl_c_or_usr1_lets_running_jobs_finish(lab: Lab, number: signal.Signals) -> None:
    gate = Gate(lab.folder)
    run = start(lab, gate)
    run.send_signal(number)
    assert run.stderr is not None
    said = run.stderr.readline()
    assert said == (
        "finishing 2 running; Ctrl-C again cancels them\n"
        if number == signal.SIGINT
        else "draining: running jobs finish, no more are started\n"
    )
    gate.open()
    _, errors = run.communicate()
    assert run.returncode == (130 if number == signal.SIGINT else 0)
    assert errors.startswith("2 done")
    assert len(gate.arrived()) == 2


def test_two_ctrl_c_cancel_running_jobs(lab: Lab) -> None:
    gate = Gate(lab.folder)
    run = start(lab, gate, before="trap 'echo asked; exit 1' TERM; ")
    run.send_signal(signal.SIGINT)
    assert run.stderr is not None
    run.stderr.readline()
    run.send_signal(signal.SIGINT)
    run.communicate()
    assert run.returncode == 130
    assert (lab.folder / "logs" / "1.log").read_text().endswith("asked\n")
    gone(gate.arrived())


def test_third_ctrl_c_kills_jobs_that_ignore_signals(lab: Lab) -> None:
    gate = Gate(lab.folder)
    run = start(lab, gate, before="trap '' TERM; ")
    assert run.stderr is not None
    run.send_signal(signal.SIGINT)
    run.stderr.readline()
    while run.poll() is None:
        run.send_signal(signal.SIGINT)
        try:
            run.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            pass
    run.communicate()
    assert run.returncode == 130
    gone(gate.arrived())


def test_ctrl_c_during_interpreter_exit_keeps_the_exit_code(lab: Lab) -> None:
    (lab.folder / "main.py").write_text(
        "import os, signal, sys\n"
        "from stoker.cli.main import main\n"
        "class Last:\n"
        "    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGINT):\n"
        "        kill(pid, number)\n"  # when modules are taken down, after all handlers
        "sys.last_one = Last()\n"
        "sys.exit(main(['run', '-q', '-l', 'logs', '--', 'sh', '-c', 'exit 3']))\n"
    )
    ended = subprocess.run([sys.executable, "main.py"], cwd=lab.folder, env=lab.env)
    assert ended.returncode == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_sigterm_and_sighup_cancel_running_jobs(lab: Lab, number: signal.Signals) -> None:
    gate = Gate(lab.folder)
    run = start(lab, gate)
    run.send_signal(number)
    run.communicate()
    assert run.returncode == 130
    assert len(gate.arrived()) == 2
    gone(gate.arrived())


def test_no_job_outlives_a_run_that_was_killed(lab: Lab) -> None:
    """The cleanup process kills them all, even one in its own session."""
    gate = Gate(lab.folder)
    hidden = Gate(lab.folder, "hidden")
    (lab.folder / "hide").write_text(hidden.wait)
    run = start(lab, gate, before="trap '' TERM HUP; (setsid sh hide >/dev/null 2>&1 &); ")
    pids = [*gate.wait_for(2), *hidden.wait_for(2)]
    assert all(map(is_alive, pids))
    run.kill()
    run.communicate()
    gone(pids)
    assert len(gate.arrived()) == 2


def test_leftover_processes_of_a_job_are_killed(lab: Lab) -> None:
    left = Gate(lab.folder, "left")
    (lab.folder / "leave").write_text(left.wait)
    (lab.folder / "jobs.txt").write_text("setsid sh leave & until [ -e left.arrivals ]; do :; done")
    done = lab.run("run", "jobs.txt")
    assert done.returncode == 0
    gone(left.wait_for())


def test_interrupted_single_command_exits_with_130(lab: Lab) -> None:
    gate = Gate(lab.folder)
    run = lab.popen("run", "-l", "logs", gate.wait)
    pids = gate.wait_for()
    knows_of(lab, 1)
    run.send_signal(signal.SIGTERM)
    run.communicate()
    assert run.returncode == 130
    gone(pids)


def test_resumed_run_continues_after_a_kill(lab: Lab) -> None:
    gate = Gate(lab.folder)
    (lab.folder / "jobs.txt").write_text(
        f"echo one >> ran\n{gate.wait}; echo two >> ran\necho three >> ran\necho four >> ran\n"
    )
    run = lab.popen("run", "-g", "0", "-l", "logs", "jobs.txt")
    pids = gate.wait_for()
    knows_of(lab, 1)
    run.kill()
    run.communicate()
    gone(pids)
    gate.open()
    done = lab.run("run", "-g", "0", "-l", "logs", "--resume", "jobs.txt")
    assert done.returncode == 0, done.stderr
    assert (lab.folder / "ran").read_text().split() == ["one", "two", "three", "four"]
