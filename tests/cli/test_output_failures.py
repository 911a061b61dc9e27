"""Commands that cannot write to stdout: their changes stay and are printed on stderr."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.lab import Lab

NOT_PRINTED = 74


def run_without_stdout(lab: Lab, how: str, *words: str) -> tuple[int, str]:
    """A command whose stdout is `full`, `closed`, or a pipe whose reader has `gone`."""
    end, start = os.pipe()
    os.close(end)
    with open("/dev/full", "wb") as full, open(start, "wb") as gone:
        done = subprocess.run(
            [*lab.command, *words],
            stdin=subprocess.DEVNULL,
            stdout={"full": full, "gone": gone, "closed": None}[how],
            stderr=subprocess.PIPE,
            env=lab.env,
            cwd=lab.folder,
            preexec_fn=(lambda: os.close(1)) if how == "closed" else None,
        )
    return done.returncode, done.stderr.decode()


@pytest.mark.parametrize("how", ["full", "closed", "gone"])
def test_submit_prints_the_id_on_stderr_when_stdout_fails(lab: Lab, how: str) -> None:
    code, errors = run_without_stdout(lab, how, "submit", "-q", "--hold", "true")
    reason = {
        "full": "No space left on device",
        "closed": "Bad file descriptor",
        "gone": "Broken pipe",
    }
    assert (code, errors) == (
        NOT_PRINTED,
        f"1\nerror: the change was made, but writing to stdout failed: {reason[how]}\n"
        "hint: do not repeat the command\n",
    )
    assert lab.states() == {1: "held"}


@pytest.mark.parametrize("how", ["full", "closed"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("submit", "--hold", "true"), "job 2 held"),
        (("submit", "--json", "--hold", "true"), "job 2 held"),
        (("submit", "-q", "--hold", "-f", "jobs.txt"), "3 jobs (2 to 4) held"),
        (("sweep", "-q", "--hold", "--name", "s", "echo {x}", "x=1,2"), "s"),
        (("sweep", "--json", "--hold", "--name", "s", "echo {x}", "x=1,2"), "sweep s: 2 jobs"),
        (("cancel", "1"), "1 job cancelled"),
        (("priority", "5", "1"), "priority of 1 job set to 5"),
        (("tag", "1", "+a"), "1 job tagged"),
        (("edit", "1", "--name", "n"), "job 1 changed"),
        (("run", "--json", "jobs.txt"), "3 done; logs in "),
        (("gpus", "drain", "0"), "GPU 0 drained"),
    ],
)
def test_changes_are_printed_on_stderr_when_stdout_fails(
    lab: Lab, how: str, words: tuple[str, ...], said: str
) -> None:
    (lab.folder / "jobs.txt").write_text("true\n" * 3)
    lab.submit("--hold", "true")
    code, errors = run_without_stdout(lab, how, *words)
    assert code == NOT_PRINTED, errors
    assert errors.startswith(said)
    assert "do not repeat the command" in errors


def test_rerun_is_printed_on_stderr_when_stdout_fails(lab: Lab) -> None:
    lab.submit("true")
    lab.wait(1)
    code, errors = run_without_stdout(lab, "full", "rerun", "--hold", "1")
    assert (code, errors.splitlines()[0]) == (NOT_PRINTED, "job 1 resubmitted as job 2")


def test_reading_commands_fail_when_stdout_is_closed(lab: Lab) -> None:
    lab.submit("--hold", "true")
    for words in (("ls",), ("show", "1", "--json"), ("help",), ("results", "--csv", "1")):
        code, errors = run_without_stdout(lab, "closed", *words)
        assert (code, errors) == (
            NOT_PRINTED, "error: cannot write to stdout: Bad file descriptor\n",
        ), words  # fmt: skip
    assert run_without_stdout(lab, "gone", "ls") == (0, "")


def test_notices_never_go_to_stdout_when_stderr_is_closed(lab: Lab, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with out.open("wb") as file:
        done = subprocess.run(
            [*lab.command, "submit", "-q", "true"],
            stdout=file, env=lab.env, cwd=lab.folder, preexec_fn=lambda: os.close(2),
        )  # fmt: skip
    assert (done.returncode, out.read_text()) == (0, "1\n")
    assert lab.wait(1) == 0


def test_job_of_a_foreground_run_inherits_the_closed_stdout(lab: Lab) -> None:
    code, errors = run_without_stdout(lab, "closed", "run", "echo x || exit 7")
    assert code == 7, errors


def test_error_that_cannot_be_written_keeps_its_exit_code(lab: Lab) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*lab.command, "show", "77"], stdout=subprocess.PIPE, stderr=full, env=lab.env,
            cwd=lab.folder,
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, b"")
