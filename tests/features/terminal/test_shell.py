"""`stoker shell`, `stoker run -it` and `stoker attach` at a real terminal."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.helpers import Terminal, refused
from tests.helpers import Gate
from tests.lab import Lab

DETACH = b"\x10\x11"


@pytest.fixture
def lab(new_lab: Callable[..., Lab]) -> Lab:
    return new_lab(devices=1)


def opened(lab: Lab, *words: str) -> Terminal:
    """A terminal with an interactive job that runs."""
    terminal = Terminal(lab, *words)
    terminal.read_until("to leave it running: Ctrl-P Ctrl-Q")
    return terminal


def test_shell_has_its_gpu_and_the_size_of_the_terminal(lab: Lab) -> None:
    terminal = opened(lab, "shell")
    terminal.write(b"echo gpu=$CUDA_VISIBLE_DEVICES job=$STOKER_JOB_ID; stty size\n")
    terminal.read_until("gpu=0 job=1\n24 80")
    terminal.write(b"exit 3\n")
    assert terminal.close() == 3
    assert lab.wait(1) == 0  # the exit code of a shell says nothing about success
    facts = lab.job(1)
    assert (facts["state"], facts["name"], facts["command"]) == ("done", "shell", "/bin/sh")
    assert "gpu=0 job=1" in lab.log(1)


@pytest.mark.parametrize("words", [("--", "sh", "-c", "exit 7"), ("exit 7 # in a shell",)])
def test_command_on_the_terminal_returns_its_exit_code(lab: Lab, words: tuple[str, ...]) -> None:
    terminal = opened(lab, "run", "-it", "--gpus", "0", *words)
    assert terminal.close() == 7
    assert (lab.wait(1), lab.state(1)) == (7, "failed")


def test_ctrl_c_goes_to_the_program(lab: Lab) -> None:
    # Not a shell that starts a program: between its commands, a shell only notes the signal.
    terminal = opened(lab, "run", "-it", "cat")
    terminal.write(b"ready\n")
    terminal.read_until("ready\nready")
    terminal.write(b"\x03")
    assert terminal.close() == 130


def test_program_that_does_not_exist_is_reported(lab: Lab) -> None:
    terminal = opened(lab, "shell", "--", "no-such-program")
    assert terminal.close() == 127
    assert "stoker: cannot start no-such-program: No such file or directory" in terminal.text


def test_ctrl_c_while_it_waits_cancels_the_job(lab: Lab) -> None:
    gate = Gate(lab.folder)
    lab.submit(gate.wait)
    gate.wait_for()
    terminal = Terminal(lab, "shell", columns=200)
    terminal.read_until("job 2 waits: it needs 1 GPU; GPU 0 runs job 1")
    terminal.interrupt()
    assert terminal.close() == 130
    assert "job 2 cancelled" in terminal.text
    assert lab.state(2) == "cancelled"


def test_shell_starts_before_jobs_of_the_default_priority(lab: Lab) -> None:
    gate = Gate(lab.folder)
    lab.submit(gate.wait)
    gate.wait_for()
    second = lab.submit("sleep 1000")
    terminal = Terminal(lab, "shell")
    terminal.read_until("job 3 waits")
    gate.open()
    terminal.read_until("job 3 on GPU 0")
    assert lab.state(second) == "queued"
    terminal.write(b"exit\n")
    assert terminal.close() == 0


def test_detached_shell_goes_on_and_can_be_attached_again(lab: Lab) -> None:
    terminal = opened(lab, "shell")
    terminal.write(b"x=kept\n" + DETACH)
    assert terminal.close() == 0
    assert "job 1 goes on; to return: stoker attach 1" in terminal.text
    again = opened(lab, "attach")
    again.write(b"echo value=$x; exit\n")
    assert again.close() == 0
    assert "value=kept" in again.text
    assert lab.wait(1) == 0


def test_lost_terminal_leaves_the_shell_running(lab: Lab) -> None:
    terminal = opened(lab, "shell")
    terminal.write(b"x=kept; echo s''et\n")
    terminal.read_until("set")
    terminal.signal(signal.SIGHUP)
    assert terminal.close() == 0
    again = opened(lab, "attach", "1")
    again.write(b"echo value=$x; exit\n")
    assert again.close() == 0
    assert "value=kept" in again.text


def test_new_terminal_replaces_the_one_before(lab: Lab) -> None:
    first = opened(lab, "shell")
    second = opened(lab, "attach")
    assert first.close() == 0
    assert "another terminal is attached to job 1 now" in first.text
    second.write(b"exit 4\n")
    assert second.close() == 4


def test_new_size_of_the_terminal_reaches_the_program(lab: Lab) -> None:
    (lab.folder / "size.py").write_text(
        "import os, signal\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])\n"
        "print('ready', flush=True)\n"
        "while os.get_terminal_size() != (120, 40): signal.sigwait([signal.SIGWINCH])\n"
        "print('resized')\n"
    )
    terminal = opened(lab, "run", "-it", "--", "python3", "size.py")
    terminal.read_until("ready")
    terminal.resize(40, 120)
    assert terminal.close() == 0
    assert "resized" in terminal.text


@pytest.mark.parametrize("crash", [Lab.kill_daemon, Lab.kill_runner])
def test_shell_survives_a_crash_of_daemon_or_runner(lab: Lab, crash: Callable[[Lab], None]) -> None:
    terminal = opened(lab, "shell")
    crash(lab)
    terminal.write(b"echo al''ive; exit\n")
    terminal.read_until("alive")
    assert terminal.close() == 0
    assert lab.wait(1) == 0


def test_cancelled_shell_ends_the_terminal(lab: Lab) -> None:
    terminal = opened(lab, "shell", "--", "sh", "-c", "trap '' TERM HUP; echo ready; read x")
    terminal.read_until("ready")
    lab.ok("cancel", "--grace", "0.1", "1")
    code = terminal.close()
    assert (code != 0, lab.state(1)) == (True, "cancelled")
    assert "job 1 cancelled: by the user" in terminal.text
    assert not lab.processes()


def test_time_limit_ends_the_shell_after_a_warning(lab: Lab) -> None:
    terminal = opened(lab, "shell", "-t", "2s")
    terminal.close()
    assert "stoker: the time limit ends this job in " in terminal.text
    assert lab.job(1)["cause"] == "time_limit"


def test_unused_shell_ends_after_a_warning(lab: Lab) -> None:
    terminal = opened(lab, "shell", "--idle", "1s")
    terminal.close()
    warning = "stoker: not used lately: ends in 0.5s unless you type or run something"
    assert warning in terminal.text
    assert "stoker: ended because it was not used for 1.0s" in terminal.text
    assert lab.wait(1) == 0
    assert "ended because it was not used" in lab.log(1)


def test_busy_program_without_output_counts_as_used(lab: Lab) -> None:
    """It uses CPU for longer than the idle time, which then begins with its end."""
    busy = "import time\nwhile time.process_time() < 2: pass\nprint('worked')"
    (lab.folder / "busy.py").write_text(busy)
    terminal = opened(lab, "run", "-it", "--idle", "1s", "--", "python3", "busy.py")
    assert terminal.close() == 0
    assert "worked" in terminal.text


def test_unused_program_that_ignores_hangups_is_killed(lab: Lab) -> None:
    script = "trap '' HUP TERM; while read x; do :; done; while :; do sleep 1000; done"
    terminal = opened(lab, "shell", "--idle", "0.5s", "--", "sh", "-c", script)
    terminal.close()
    lab.wait(1)
    assert not lab.processes()


def test_interactive_jobs_need_a_terminal(lab: Lab) -> None:
    hint = "in scripts, use `stoker submit`"
    for words in (("shell",), ("run", "-it", "true"), ("attach",)):
        refused(lab.run(*words), 2, "an interactive job needs a terminal", hint)
    assert lab.states() == {}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("attach",), "no interactive job is running"),
        (("attach", "1"), "job 1 is not interactive, so no terminal can attach to it"),
        (("run", "-it", "--devices", "0", "true"), "`-it` and `--devices` exclude each other"),
        (("run", "-it", "--retries", "2", "true"), "`-it` and `--retries` exclude each other"),
        (("run", "-it"), "no command given"),
        (("run", "--idle", "5m", "true"), "`--idle` is for interactive jobs"),
        (("shell", "--retries", "2"), "`stoker shell` has no option `--retries`"),
    ],
)  # fmt: skip
def test_mistake_is_refused(lab: Lab, words: tuple[str, ...], message: str) -> None:
    lab.submit("--hold", "true")
    terminal = Terminal(lab, *words)
    assert terminal.close() != 0
    assert f"error: {message}\n" in terminal.text
    assert lab.states() == {1: "held"}


def test_program_is_not_started_without_a_terminal(tmp_path: Path) -> None:
    """The client was killed while the job waited: the GPU is released soon."""
    code = (
        "import sys\n"
        "from stoker.engine.supervisor.sockets import listen\n"
        "from stoker.features.terminal.session import Session\n"
        f"sys.exit(Session(listen({str(tmp_path)!r}, '1'), 0, ['touch', 'started'], 0.1).serve())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True)
    assert (done.returncode, done.stdout.strip()) == (
        1, b"stoker: not started, because no terminal was attached for 0.1s",
    )  # fmt: skip
    assert not (tmp_path / "started").exists()


def test_socket_of_a_shell_is_removed_with_it(lab: Lab) -> None:
    terminal = opened(lab, "shell")
    terminal.write(b"exit\n")
    terminal.close()
    lab.wait(1)
    assert list((lab.state_dir / "terminals").iterdir()) == []
