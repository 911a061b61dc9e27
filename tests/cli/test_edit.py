"""`stoker edit`: with options, or in an editor on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable

from tests.cli.helpers import as_json, refused
from tests.helpers import Gate
from tests.lab import Lab


def edit_on_a_terminal(lab: Lab, job: int, script: str) -> tuple[int, str]:
    """Run `stoker edit` on a pseudo-terminal, with a script as the editor."""
    editor = lab.folder / "editor"
    editor.write_text(f"#!/bin/sh\n{script}\n")
    editor.chmod(0o755)
    master, slave = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "stoker", "edit", str(job)],
            stdin=slave,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**lab.env, "EDITOR": str(editor)},
        )
    finally:
        os.close(master)
        os.close(slave)
    return done.returncode, done.stdout.decode()


def test_flags_change_a_waiting_job(lab: Lab) -> None:
    job = lab.submit("--hold", "echo", "old")
    flags = ["-c", "echo new | tac", "-G2", "-n", "x", "-p", "-3", "-t", "90", "-r", "4"]
    assert lab.ok("edit", str(job), *flags) == f"job {job} changed\n"
    facts = lab.job(job)
    assert (facts["command"], facts["shell"], facts["gpus"]) == ("echo new | tac", True, 2)
    assert (facts["name"], facts["priority"], facts["time_limit"], facts["retries"]) == (
        "x", -3, 5400.0, 4,
    )  # fmt: skip
    assert as_json(lab.ok("edit", "@", "-t", "0", "-n", "", "--json"))["changed"] == job
    assert (lab.job(job)["time_limit"], lab.job(job)["name"]) == (None, None)
    lab.ok("release", str(job))
    assert lab.wait(job) == 0
    assert lab.log(job) == "new\n"


def test_editor_changes_the_command(lab: Lab) -> None:
    job = lab.submit("--hold", "echo", "old  word")
    script = 'cat "$1" > seen; echo "echo from the editor" > "$1"'
    assert edit_on_a_terminal(lab, job, f"cd {lab.folder}; {script}") == (
        0,
        f"job {job} changed\n",
    )
    assert (lab.folder / "seen").read_text() == "echo 'old  word'\n"
    lab.ok("release", str(job))
    assert lab.wait(job) == 0
    assert lab.log(job) == "from the editor\n"


def test_editor_that_saves_by_renaming_works(lab: Lab) -> None:
    job = lab.submit("--hold", "echo old")
    assert edit_on_a_terminal(lab, job, 'echo "echo new" > "$1.tmp"; mv "$1.tmp" "$1"')[0] == 0
    assert lab.job(job)["command"] == "echo new"


def test_editor_without_changes_leaves_the_job_unchanged(lab: Lab) -> None:
    job = lab.submit("--hold", "echo", "two words")
    assert edit_on_a_terminal(lab, job, "true") == (0, f"job {job} is unchanged\n")
    assert lab.job(job)["argv"] == ["echo", "two words"]


def test_editor_that_fails_or_empties_the_file_leaves_the_job_unchanged(lab: Lab) -> None:
    job = lab.submit("--hold", "echo old")
    code, text = edit_on_a_terminal(lab, job, "exit 1")
    assert (code, text) == (1, "error: the editor failed; the job is unchanged\n")
    code, text = edit_on_a_terminal(lab, job, ': > "$1"')
    assert (code, text) == (2, "error: the command is empty\n")
    assert lab.job(job)["command"] == "echo old"


def test_edit_without_a_terminal_needs_options(lab: Lab) -> None:
    job = lab.submit("--hold", "true")
    refused(lab.run("edit", str(job), EDITOR="true"), 2, "no changes given",
            "give options, or set EDITOR and run it on a terminal")  # fmt: skip


def test_only_one_waiting_job_can_be_edited(lab: Lab) -> None:
    lab.ok("submit", "--hold", "-f", "-", input="true\ntrue\n")
    refused(lab.run("edit", "all", "-G0"), 2, "exactly one job can be edited at a time",
            "example: stoker edit 7 --gpus 2")  # fmt: skip
    lab.ok("cancel", "1")
    refused(lab.run("edit", "1", "-G0"), 1, "job 1 was cancelled; only a waiting job can be edited",
            "`stoker rerun --hold 1` creates a copy that can be edited")  # fmt: skip
    refused(lab.run("edit", "2", "-c", " "), 2, "the command is empty")
    assert lab.run("edit", "2", "-G3").returncode == 65
    gate = Gate(lab.folder)
    lab.submit(gate.wait)
    gate.wait_for()
    lab.wait_until(lambda: lab.state(3) == "running")
    hint = "after `stoker cancel 3`, `stoker rerun --hold 3` creates a copy that can be edited"
    refused(
        lab.run("edit", "3", "-G0"), 1, "job 3 is running; only a waiting job can be edited", hint
    )


def test_begin_time_can_be_set_changed_and_removed(lab: Lab) -> None:
    job = lab.submit("true")
    lab.wait(job)
    job = lab.submit("--begin", "+1h", "true")
    lab.ok("edit", str(job), "--begin", "2031-01-01T12:00")
    assert "[begins 2031-01-01 12:00] true" in lab.ok("ls")
    assert lab.state(job) == "queued"
    lab.ok("edit", str(job), "--begin", "now")
    assert lab.wait(job) == 0


def test_edit_begin_now_skips_the_delay_of_a_retry(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=1, STOKER_RETRY_DELAY="1h")
    job = lab.submit("-r", "1", "[ $STOKER_ATTEMPT = 2 ]")
    lab.wait_until(lambda: lab.job(job)["attempts"] == 1 and lab.state(job) == "queued")
    lab.ok("edit", str(job), "--begin", "now")
    assert lab.wait(job) == 0


def test_folder_and_environment_can_be_changed(lab: Lab) -> None:
    (lab.folder / "there").mkdir()
    job = lab.submit("--hold", "-E", "A=old", "-E", "B=kept", "pwd; echo $A $B $C")
    lab.ok("edit", str(job), "-C", "there", "-E", "A=new", "--env", "C", C="copied")
    lab.ok("release", str(job))
    assert lab.wait(job) == 0
    assert lab.log(job) == f"{lab.folder}/there\nnew kept copied\n"
    refused(lab.run("edit", str(lab.submit("--hold", "true")), "-C", "nowhere"), 2,
            "the folder `nowhere` does not exist")  # fmt: skip


def test_dependencies_can_be_changed(lab: Lab) -> None:
    lab.ok("submit", "--hold", "-f", "-", input="true\ntrue\n")
    job = lab.submit("--after", "1", "true")
    lab.ok("edit", str(job), "--after", "2:any")
    assert "[after 2] true" in lab.ok("ls", str(job))
    assert lab.run("edit", "2", "--after", str(job)).returncode == 1  # a cycle
    lab.ok("edit", str(job), "--after", "none")
    assert lab.wait(job) == 0
