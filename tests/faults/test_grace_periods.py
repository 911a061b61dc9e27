"""A second, shorter grace period shortens the first, under daemon, runner or neither."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.helpers import Gate, is_alive
from tests.lab import Lab

STUBBORN = "trap '' TERM; "  # only SIGKILL ends it


def nothing(lab: Lab) -> None:
    """Daemon and runner keep running."""


def kill_both(lab: Lab) -> None:
    lab.kill_runner()
    lab.kill_daemon()


def restart(lab: Lab) -> None:
    lab.ok("daemon", "restart")


@pytest.mark.parametrize(
    ("meanwhile", "shorter"),
    [
        (nothing, ["--now"]),
        (Lab.kill_runner, ["--now"]),
        (Lab.kill_runner, ["--grace", "0.2s"]),
        (Lab.kill_daemon, ["--now"]),
        (kill_both, ["--now"]),
        (restart, ["--now"]),
    ],
)
def test_second_cancel_with_a_shorter_grace_period_shortens_the_first(
    lab: Lab, meanwhile: Callable[[Lab], None], shorter: list[str]
) -> None:
    gate = Gate(lab.folder)
    job = lab.submit(STUBBORN + gate.wait)
    (pid,) = gate.wait_for()
    lab.ok("cancel", "--grace", "1h", str(job))
    lab.wait_until(lambda: lab.state(job) == "stopping")
    meanwhile(lab)
    lab.ok("cancel", *shorter, str(job))
    lab.wait_until(lambda: not is_alive(pid), what="the job to be killed")
    lab.wait(job)
    assert lab.state(job) == "cancelled"


def test_second_cancel_with_a_longer_grace_period_changes_nothing(lab: Lab) -> None:
    gate = Gate(lab.folder)
    job = lab.submit(STUBBORN + gate.wait)
    (pid,) = gate.wait_for()
    lab.ok("cancel", "--grace", "1s", str(job))
    lab.ok("cancel", "--grace", "1h", str(job))
    lab.kill_runner()
    lab.wait_until(lambda: not is_alive(pid), what="the job to be killed")
    lab.wait(job)
    assert lab.state(job) == "cancelled"


def test_third_interrupt_of_a_run_kills_the_jobs_that_the_second_terminated(lab: Lab) -> None:
    gate = Gate(lab.folder)
    terminated = lab.folder / "terminated"
    jobs = lab.folder / "jobs.txt"
    jobs.write_text(f"trap 'echo >> {terminated}' TERM; {gate.wait}\n")
    run = lab.popen("run", "-G0", "--grace", "1h", str(jobs))
    (pid,) = gate.wait_for()
    run.send_signal(signal.SIGINT)
    assert run.stderr is not None
    while "Ctrl-C again cancels" not in run.stderr.readline():
        pass
    run.send_signal(signal.SIGINT)
    lab.wait_until(terminated.exists, what="SIGTERM")
    assert is_alive(pid)
    run.send_signal(signal.SIGINT)
    run.communicate()
    assert not is_alive(pid)
