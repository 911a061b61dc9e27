"""A job that starts with other code than it was submitted with says so."""

from __future__ import annotations

import sys
import time

from stoker.features.code.code_checks import MIN_WAIT_SECONDS
from tests.features.code.git_repository import GitRepository
from tests.lab import Lab


def wait_long_enough(lab: Lab) -> None:
    """Until the jobs so far have waited long enough to be checked."""
    enough = time.monotonic() + MIN_WAIT_SECONDS + 0.1
    lab.wait_until(lambda: time.monotonic() > enough)


def test_job_with_changed_code_says_so_in_its_log_and_show(lab: Lab) -> None:
    repo = GitRepository(lab.folder / "repo")
    repo.commit(a_py="1\n", b_py="1\n", c_py="1\n")
    command = ("submit", "--hold", "-q", "--gpus", "0")
    first = int(lab.ok(*command, "echo hello", cwd=repo.folder))
    lab.ok(*command, "echo again", cwd=repo.folder)
    lab.ok(*command, "-o", "own.txt", "echo own", cwd=repo.folder)
    snapshot = int(lab.ok(*command, "--snapshot", "echo safe", cwd=repo.folder))
    wait_long_enough(lab)
    repo.write("a.py", "2\n")
    repo.write("b.py", "2\n")
    (repo.folder / "c.py").unlink()
    lab.ok("release", str(first))
    assert lab.wait(first) == 0
    line = "the code has changed since submit: a.py and 2 more files"
    assert lab.ok("log", str(first)) == f"stoker: {line}\nhello\n"
    assert "code_changed a.py and 2 more files" in lab.ok("show", str(first))
    lab.ok("release", f"{first + 1}-{snapshot}")  # soon after: these use the result of the first
    assert lab.wait(first + 1, first + 2, snapshot) == 0
    assert lab.ok("log", str(first + 1)) == f"stoker: {line}\nagain\n"
    assert (repo.folder / "own.txt").read_text() == f"stoker: {line}\nown\n"
    assert lab.ok("log", str(snapshot)) == "safe\n"
    assert "code_changed" not in lab.ok("show", str(snapshot))
    lab.ok("clean", "-y")
    assert list((lab.state_dir / "code/checks").iterdir()) == []


def test_job_with_the_same_code_says_nothing(lab: Lab) -> None:
    repo = GitRepository(lab.folder / "repo")
    repo.commit(a_py="1\n")
    repo.write("a.py", "2\n")
    job = int(lab.ok("submit", "--hold", "-q", "--gpus", "0", "echo hello", cwd=repo.folder))
    missing = lab.ok("submit", "--hold", "-q", "--gpus", "0", "-f", "-", cwd=repo.folder,
                     input="./missing-program\n")  # fmt: skip
    wait_long_enough(lab)
    repo.commit()  # the content of the files is the same
    lab.ok("release", str(job), missing.strip())
    lab.wait(job, int(missing))
    assert lab.ok("log", str(job)) == "hello\n"
    assert "code_changed" not in lab.ok("show", str(job))
    assert lab.job(int(missing))["state"] == "failed"


def test_warm_job_with_changed_code_says_so(lab: Lab) -> None:
    repo = GitRepository(lab.folder / "repo")
    repo.commit(a_py="print(1)\n")
    command = ("submit", "--hold", "-q", "--gpus", "0", "--warm=json", "-o")
    job = int(lab.ok(*command, "a.txt", "--", sys.executable, "a.py", cwd=repo.folder))
    other = int(lab.ok(*command, "b.txt", "--", sys.executable, "a.py", cwd=repo.folder))
    wait_long_enough(lab)
    repo.write("a.py", "print(2)\n")
    lab.ok("release", str(job))
    assert lab.wait(job) == 0
    lab.ok("release", str(other))
    assert lab.wait(other) == 0
    line = "stoker: the code has changed since submit: a.py\n"
    for name, one in (("a.txt", job), ("b.txt", other)):
        assert (repo.folder / name).read_text() == f"{line}2\n"
        shown = lab.ok("show", str(one))
        assert "code_changed a.py" in shown
        assert "cold_start" not in shown


def test_warm_job_can_be_cancelled_while_its_code_is_compared(lab: Lab) -> None:
    """Git hangs, as it does on a file system that does not answer."""
    repo = GitRepository(lab.folder / "repo")
    repo.commit(a_py="print(1)\n")
    programs = lab.folder / "programs"
    programs.mkdir()
    (programs / "git").write_text(f"#!/bin/sh\ntouch {lab.folder}/compares\nexec sleep 600\n")
    (programs / "git").chmod(0o755)
    lab.ok("daemon", "start", PATH=f"{programs}:{lab.env['PATH']}")
    command = ("submit", "--hold", "-q", "--gpus", "0", "--warm=json", "--")
    job = int(lab.ok(*command, sys.executable, "a.py", cwd=repo.folder))
    wait_long_enough(lab)
    lab.ok("release", str(job))
    lab.wait_until((lab.folder / "compares").exists)
    lab.ok("cancel", str(job))
    lab.wait(job)
    assert lab.state(job) == "cancelled"
