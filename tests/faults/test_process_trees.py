"""Stopping a job ends all its processes (rows 21 and 23); what a job inherits."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab import Lab, wait_until

STUBBORN_PROCESSES = Path(__file__).parent / "stubborn_processes.py"
NAMES = {
    "main", "plain", "ignores-sigterm", "session", "daemonised", "no-environment", "stopped",
    "reforking",
}  # fmt: skip
LEFT = "stoker: the command has exited; stopped what it left running: "


def wait_for_zoo(folder: Path) -> None:
    wait_until(lambda: {path.name for path in folder.iterdir()} == NAMES)


def wait_until_empty(lab: Lab) -> None:
    wait_until(lambda: not lab.processes())


def _start_zoo(lab: Lab) -> tuple[int, Path]:
    folder = lab.folder / "folder"
    folder.mkdir()
    job = lab.submit("--grace", "0.2", "--", sys.executable, str(STUBBORN_PROCESSES), str(folder))
    lab.wait_until(lambda: {path.name for path in folder.iterdir()} == NAMES)
    lab.wait_until(lambda: all(path.read_text() for path in folder.iterdir()))
    return job, folder


def test_cancel_leaves_no_hostile_process_alive(lab: Lab) -> None:
    job, folder = _start_zoo(lab)
    lab.ok("cancel", str(job))
    lab.wait(job)
    assert lab.state(job) == "cancelled"
    assert not lab.processes()
    for name in NAMES - {"reforking"}:
        pid = int((folder / name).read_text())
        assert not os.path.exists(f"/proc/{pid}") or _is_zombie(pid), name


def test_foreground_run_leaves_no_hostile_process_alive_after_sigterm_or_sigkill(
    new_lab: Callable[..., Lab],
) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        lab = new_lab()
        folder = lab.folder / "folder"
        folder.mkdir()
        args = ("--grace", "0.2", "--", sys.executable, str(STUBBORN_PROCESSES), str(folder))
        lab.state_dir = lab.folder / "logs"  # the run keeps its database there
        run = lab.popen("run", "--devices", "0", "--log-dir", str(lab.state_dir), *args)
        wait_for_zoo(folder)
        assert lab.processes()
        run.send_signal(number)
        run.communicate()
        wait_until_empty(lab)


def test_job_ends_only_after_its_leftover_processes_are_killed(lab: Lab) -> None:
    pid_file = lab.folder / "pid"
    job = lab.submit(f"setsid sh -c 'echo $$ > {pid_file}; exec sleep 1000' & "
                     f"while [ ! -s {pid_file} ]; do sleep 0.01; done; exit 5")  # fmt: skip
    assert lab.wait(job) == 5
    assert not lab.processes()
    pid = pid_file.read_text().strip()
    assert not os.path.exists(f"/proc/{pid}")
    (event,) = lab.job(job)["events"]
    assert (event["kind"], event["data"]) in (
        ("stopped_leftovers", f"sleep (PID {pid})"),
        ("stopped_leftovers", f"sh (PID {pid})"),  # before its exec
    )
    assert lab.log(job) == LEFT + event["data"] + "\n"
    assert f"  stopped_leftovers {event['data']}" in lab.ok("show", str(job))


def test_leftovers_are_named_in_a_file_of_the_user_and_by_a_foreground_run(lab: Lab) -> None:
    lab.wait(lab.submit("-o", f"{lab.folder}/out", "sleep 1000 & echo $!"))
    lines = "sleep 1000 & echo $!\ntrue\n"
    lab.ok("run", "--devices", "0", "--log-dir", "logs", "-", input=lines)
    for path in (lab.folder / "out", lab.folder / "logs/1.log"):
        pid, line = path.read_text().splitlines()
        assert line.startswith(LEFT) and line.endswith(f"(PID {pid})")


def test_leftover_processes_survive_with_keep_children(lab: Lab) -> None:
    pid_file = lab.folder / "pid"
    job = lab.submit("--keep-children", f"setsid sh -c 'echo $$ > {pid_file}; exec sleep 1000' & "
                     f"while [ ! -s {pid_file} ]; do sleep 0.01; done")  # fmt: skip
    assert lab.wait(job) == 0
    assert os.path.exists(f"/proc/{pid_file.read_text().strip()}")


def test_daemon_started_by_a_job_is_not_part_of_the_job(lab: Lab) -> None:
    """The first `stoker submit` of a queue may come from a job of another queue."""
    inner = lab.folder / "inner"
    command = f"STOKER_STATE_DIR={inner} {sys.executable} -m stoker submit -q 'exit 3'"
    job = lab.submit(command)
    assert lab.wait(job) == 0
    done = lab.run("wait", "1", STOKER_STATE_DIR=str(inner))
    assert done.returncode == 3
    lab.run("daemon", "stop", STOKER_STATE_DIR=str(inner))


def test_job_inherits_exactly_three_descriptors(lab: Lab) -> None:
    probe = "import os; print(sorted(int(f) for f in os.listdir('/proc/self/fd'))[:-1])"
    job = lab.submit("--", sys.executable, "-c", probe)
    assert lab.wait(job) == 0
    assert lab.log(job) == "[0, 1, 2]\n"


def test_job_starts_with_default_signals_an_empty_stdin_and_its_own_session(lab: Lab) -> None:
    probe = (
        "import os, signal, sys;"
        "print([s.name for s in signal.valid_signals() if isinstance(s, signal.Signals)"
        " and signal.getsignal(s) is signal.SIG_IGN and s.name not in ('SIGPIPE', 'SIGXFSZ')]);"
        "print(open('/proc/self/status').read().split('SigIgn:')[1].split()[0]);"
        "print(repr(sys.stdin.read()), os.getsid(0) == os.getpid())"
    )
    job = lab.submit("--", sys.executable, "-c", probe)
    assert lab.wait(job) == 0
    names, mask, rest = lab.log(job).splitlines()
    assert names == "[]" and rest == "'' True"
    python_itself = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)
    assert int(mask, 16) & 0x7FFFFFFF & ~python_itself == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_signal_that_kills_a_job_is_recorded(lab: Lab, number: int) -> None:
    job = lab.submit(f"kill -{int(number)} $$")
    assert lab.wait(job) == 128 + number
    assert lab.job(job)["signal"] == number and lab.job(job)["cause"] == "signal"


def _is_zombie(pid: int) -> bool:
    try:
        return b") Z " in Path(f"/proc/{pid}/stat").read_bytes()
    except FileNotFoundError:
        return True
