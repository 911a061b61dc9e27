"""`stoker --host`: every command runs on the box, with its exit code, output and terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.helpers import Terminal
from tests.features.remote.ssh_box import SshBox
from tests.lab import wait_until

AWKWARD = ["a b", "it's", 'say "x"', "$HOME", "`id`", "!!", "a\\nb\\", "two\nlines", "é", "", "*"]


def test_commands_run_on_the_box_and_not_here(box: SshBox) -> None:
    job = int(box.ok("submit", "-q", "echo $ON_THE_BOX"))
    assert box.run("wait", str(job)).returncode == 0
    assert box.ok("log", str(job)) == "1\n"
    assert json.loads(box.ok("ls", "--state", "all", "--json"))["jobs"][0]["id"] == job
    assert box.there.states() == {job: "done"}
    assert box.here.states() == {}


def test_hints_name_the_box_as_the_user_did(box: SshBox) -> None:
    said = "follow: stoker --host box log -f 1\n"
    assert box.ok("submit", "true").endswith(said)
    assert box.here.ok("submit", "true", STOKER_HOST="box").endswith("follow: stoker log -f 2\n")
    out = box.ok("sweep", "-n", "fox", "echo {a}", "a=1")
    assert out.endswith("results: stoker --host box results fox\n")


def test_words_arrive_unchanged(box: SshBox) -> None:
    job = int(box.ok("submit", "-q", "--name", "it's $HOME", "--", "printf", "%s|", *AWKWARD))
    assert box.there.wait(job) == 0
    assert box.there.log(job) == "|".join(AWKWARD) + "|\n"
    assert box.there.job(job)["name"] == "it's $HOME"


@pytest.mark.parametrize("code", [0, 3, 127, 255])
def test_exit_code_of_the_command_is_returned(box: SshBox, code: int) -> None:
    job = int(box.ok("submit", "-q", f"exit {code}"))
    assert box.run("wait", str(job)).returncode == code
    assert list(box.home.glob(".stoker-exit-*")) == []


def test_errors_of_the_box_are_printed_as_here(box: SshBox) -> None:
    for words in (["show", "7"], ["ls", "--nonsense"], ["nonsense"]):
        there, through = box.there.run(*words), box.run(*words)
        assert (through.returncode, through.stderr) == (there.returncode, there.stderr)
    assert json.loads(box.run("show", "7", "--json").stdout)["error"]["code"] == "not_found"


def test_job_has_the_environment_of_a_login_shell(box: SshBox) -> None:
    (box.home / ".profile").write_text("echo welcome\necho oops >&2\nexport FROM_PROFILE=yes\n")
    words = "echo $FROM_PROFILE,$SSH_CONNECTION,$SSH_CLIENT,$STOKER_REMOTE_CALL,$_STOKER_SCRIPT"
    done = box.run("submit", "-q", words)
    assert box.there.wait(int(done.stdout)) == 0
    assert box.there.log(int(done.stdout)) == "yes,,,,\n"
    assert "oops" not in done.stderr


def test_program_is_found_in_the_path_of_a_login_shell(box: SshBox) -> None:
    box.set_environment(PATH="/usr/bin:/bin")
    done = box.run("ls")
    assert done.returncode == 69
    assert done.stderr.startswith(
        "error: Stoker is not installed on box: no `stoker` in the PATH or in ~/.local/bin\nhint: "
    )
    assert "--stoker PATH" in done.stderr
    program = box.folder / "there" / "bin" / "stoker"
    (box.home / ".profile").write_text(f"PATH={program.parent}:$PATH\n")
    box.ok("ls")
    (box.home / ".profile").unlink()
    (box.home / ".local" / "bin").mkdir(parents=True)
    (box.home / ".local" / "bin" / "stoker").symlink_to(program)
    box.ok("ls")


def test_shells_of_other_kinds_run_the_command(box: SshBox) -> None:
    for shell in ("/bin/bash", "/bin/sh", "/bin/false"):
        if shell == "/bin/false":  # a shell that Stoker does not know: sshd's own shell runs it
            (box.folder / "unknown").write_text('#!/bin/sh\nshift; exec /bin/sh -c "$1"\n')
            (box.folder / "unknown").chmod(0o755)
            shell = str(box.folder / "unknown")
        box.set_environment(SHELL=shell)
        job = int(box.ok("submit", "-q", "--", "printf", "%s|", *AWKWARD))
        assert box.there.wait(job) == 0
        assert box.there.log(job) == "|".join(AWKWARD) + "|\n"


def test_unreachable_host_is_an_error_with_its_name(box: SshBox) -> None:
    config = box.folder / "ssh_config"
    config.write_text(f"{config.read_text()}Host gone\n  HostName 127.0.0.1\n  Port 1\n")
    done = box.here.run("--host", "gone", "ls")
    assert done.returncode == 69
    assert (
        "error: cannot connect to gone over ssh\nhint: check the connection with: ssh gone\n"
        in (done.stderr)
    )
    error = json.loads(box.here.run("--host", "gone", "--json", "ls").stdout)["error"]
    assert error["code"] == "unavailable"
    assert "gone" in error["message"]


@pytest.mark.parametrize("host", ["-oProxyCommand=touch x", "", "a b"])
def test_text_that_is_not_a_host_is_refused(box: SshBox, host: str) -> None:
    done = box.here.run("--host", host, "ls")
    assert done.returncode == 2
    assert "is not a host" in done.stderr


def test_host_without_a_value_and_after_the_command_are_usage_errors(box: SshBox) -> None:
    assert box.here.run("--host").returncode == 2
    done = box.here.run("ls", "--host", "box")
    assert "hint: put it before the command: stoker --host HOST ls" in done.stderr


def test_commands_share_one_connection(box: SshBox) -> None:
    box.ok("ls")
    (before,) = box.sshd.connections()
    for _ in range(3):
        box.ok("ls")
    assert box.sshd.connections() == [before]


def test_parallel_first_commands_share_one_connection(box: SshBox) -> None:
    processes = [box.popen("ls") for _ in range(4)]
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    assert len(box.sshd.connections()) == 1


def test_control_sockets_are_private(box: SshBox) -> None:
    box.ok("ls")
    folder = Path(box.here.env["XDG_RUNTIME_DIR"]) / "stoker-ssh"
    assert folder.stat().st_mode & 0o777 == 0o700


def test_control_socket_is_not_made_in_a_folder_of_others(box: SshBox) -> None:
    folder = Path(box.here.env["XDG_RUNTIME_DIR"]) / "stoker-ssh"
    folder.mkdir(mode=0o755)
    fallback = Path(f"/tmp/stoker-ssh-{os.geteuid()}")
    before = set(fallback.iterdir()) if fallback.exists() else None
    try:
        box.ok("ls")
        assert list(folder.iterdir()) == []
    finally:
        box.cut()
        for path in set(fallback.iterdir()) - (before or set()):
            path.unlink(missing_ok=True)
        if before is None:
            fallback.rmdir()


def test_variables_choose_the_box(box: SshBox) -> None:
    job = box.there.submit("true")
    assert f"{job} " in box.here.ok("ls", "--state", "all", STOKER_HOST="box")
    assert box.here.ok("ls", "--state", "all", STOKER_HOST="local") == box.here.ok("ls")
    words = ("--host", "local", "ls", "--state", "all", "--json")
    assert json.loads(box.here.ok(*words, STOKER_HOST="box"))["jobs"] == []


def test_command_in_a_job_means_the_queue_of_the_job(box: SshBox) -> None:
    box.there.submit("true")
    here = box.here.ok("ls", "--json", STOKER_HOST="box", STOKER_JOB_ID="1")
    assert json.loads(here)["jobs"] == []


def test_help_needs_no_connection(box: SshBox) -> None:
    assert box.here.ok("--host", "nowhere.invalid", "ls", "--help") == box.here.ok("ls", "--help")


def test_version_of_the_box_is_printed(box: SshBox) -> None:
    assert box.ok("--version") == box.here.ok("--version")


def test_terminal_of_this_machine_is_used_on_the_box(box: SshBox) -> None:
    job = box.there.submit("--name", "n" * 300, "true")
    box.there.wait(job)
    env = {**box.here.env}
    env.pop("NO_COLOR")
    box.here.env = env
    terminal = Terminal(box.here, "--host", "box", "ls", "--state", "all", columns=60)
    assert terminal.close() == 0
    assert "\x1b[" in terminal.text  # colors
    lines = [line for line in terminal.text.split("\n") if "done" in line]
    assert lines and all("n" * 60 not in line for line in lines)  # cut to the width


def test_question_on_the_terminal_reaches_the_user(box: SshBox) -> None:
    job = box.there.submit("true")
    box.there.wait(job)
    terminal = Terminal(box.here, "--host", "box", "clean")
    terminal.read_until("?")
    terminal.write(b"y\n")
    assert terminal.close() == 0
    assert box.there.states() == {}


def test_dashboard_of_the_box_is_used_at_this_terminal(box: SshBox) -> None:
    job = box.there.submit("--hold", "--name", "on-the-box", "true")
    terminal = Terminal(box.here, "--host", "box", "top")
    terminal.read_until("on-the-box")
    terminal.write(b"c")
    terminal.read_until(f"cancel job {job} (on-the-box, held)?")
    terminal.write(b"y")
    terminal.read_until(f"job {job} cancelled")
    terminal.write(b"q")
    terminal.read_until("\x1b[?1049l")  # the screen with the shell
    assert terminal.close() == 0
    assert box.there.state(job) == "cancelled"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_end_of_the_command_here_ends_it_on_the_box(box: SshBox, number: int) -> None:
    job = box.there.submit("--hold", "true")
    process = box.popen("wait", str(job))
    wait_until(lambda: _waits_there(job))
    process.send_signal(number)
    wait_until(lambda: not _waits_there(job), what="the end of `wait` on the box")


@pytest.mark.parametrize("has_terminal", [True, False])
def test_interrupt_ends_the_command_on_the_box(box: SshBox, has_terminal: bool) -> None:
    job = box.there.submit("--hold", "true")
    words = ("--host", "box", "wait", str(job))
    if has_terminal:
        terminal = Terminal(box.here, *words)
        wait_until(lambda: _waits_there(job))
        terminal.read_until("held")
        terminal.write(b"\x03")
        assert terminal.close() == 130
    else:
        process = box.here.popen(*words, start_new_session=True)
        wait_until(lambda: _waits_there(job))
        os.killpg(process.pid, signal.SIGINT)
        process.communicate()
        assert process.returncode == 130
    wait_until(lambda: not _waits_there(job), what="the end of `wait` on the box")


def _waits_there(job: int) -> bool:
    """Whether a `stoker wait` that was started by sshd runs."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[1:5] == [b"-m", b"stoker", b"box", b"wait"] and words[6] == b"%d" % job:
                return True
    return False


def test_stdin_of_other_commands_is_left_alone(box: SshBox) -> None:
    script = 'while read -r line; do "$@" --host box ls >/dev/null; echo "$line"; done'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *box.here.command],
        input="one\ntwo\n", text=True, capture_output=True, env=box.here.env,
    )  # fmt: skip
    assert done.stdout == "one\ntwo\n"


def test_change_whose_connection_is_lost_is_not_repeated(box: SshBox) -> None:
    (box.folder / "hold-all").touch()
    job = box.there.submit("--hold", "true")
    held = box.hold("before", str(job))
    process = box.popen("cancel", str(job), "--json")
    box.wait_until_held()
    box.cut()
    out, _ = process.communicate()
    held.unlink()
    error = json.loads(out)["error"]
    assert error["message"] == (
        "the connection to box was lost, so the result of `stoker cancel` is unknown"
    )
    assert error["hint"] == "see what happened: stoker --host box ls"
    assert process.returncode == 69


def test_release_of_the_box_is_named_when_it_lacks_something(box: SshBox) -> None:
    old = box.folder / "there" / "bin" / "old"
    old.write_text(
        '#!/bin/sh\nif [ "$1" = --version ]; then echo "stoker 0.0.9"; exit; fi\n'
        'echo "error: \\`$1\\` is not a Stoker command" >&2\nexit 2\n'
    )
    old.chmod(0o755)
    box.here.ok("context", "add", "older", "--host", "box", "--stoker", str(old))
    done = box.here.run("--host", "older", "gpus")
    assert done.returncode == 2
    assert "note: older has Stoker 0.0.9 and this machine 0.1.0" in done.stderr
    done = box.here.run("--host", "older", "submit", "true")
    assert done.returncode == 69
    assert "Stoker on older is too old for this command: older has 0.0.9" in done.stderr


def test_shell_on_another_machine_uses_this_terminal(box: SshBox) -> None:
    terminal = Terminal(box.here, "--host", "box", "shell", columns=100)
    terminal.read_until("to leave it running: Ctrl-P Ctrl-Q")
    terminal.write(b"stty size; echo gpu=$CUDA_VISIBLE_DEVICES; exit 3\n")
    assert terminal.close() == 3
    assert "24 100\ngpu=0\n" in terminal.text
