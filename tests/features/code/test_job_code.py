"""Jobs record the code of their folder at submit, and where their attempts ran."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.engine.store.database import open_database
from stoker.engine.supervisor.job_python import python_of_path
from tests.features.code.git_repository import GitRepository
from tests.lab import Lab


@pytest.fixture
def repo(lab: Lab) -> GitRepository:
    repo = GitRepository(lab.folder / "repo")
    repo.commit(train_py="1\n")
    return repo


def held(lab: Lab, folder: Path, *words: str) -> int:
    return int(lab.ok("submit", "--hold", "-q", *words, "true", cwd=folder))


def code(lab: Lab, job: int) -> dict[str, object] | None:
    found = json.loads(lab.ok("show", str(job), "--json"))["jobs"][0]["code"]
    return found  # type: ignore[no-any-return]


def states(lab: Lab) -> int:
    db = open_database(str(lab.state_dir))
    try:
        return int(str(db.value("SELECT count(*) FROM code_states")))
    finally:
        db.close()


def test_job_outside_a_repository_has_no_code(lab: Lab) -> None:
    job = held(lab, lab.folder)
    assert code(lab, job) is None
    assert "code " not in lab.ok("show", str(job))
    done = lab.run("show", str(job), "--diff")
    assert (done.returncode, done.stdout) == (0, "")
    assert "was in no git repository" in done.stderr


def test_job_records_commit_branch_and_diff(lab: Lab, repo: GitRepository) -> None:
    commit = repo.git("rev-parse", "HEAD")
    clean = held(lab, repo.folder)
    repo.write("train.py", "2\n")
    dirty = held(lab, repo.folder)
    repo.write("train.py", "3\n")  # a later change is not in the record
    found = code(lab, dirty)
    assert found is not None and found["root"] == str(repo.folder)
    assert (found["commit"], found["branch"], found["dirty"]) == (commit, "main", True)
    assert f"code        commit {commit[:12]} on main\n" in lab.ok("show", str(clean))
    assert f"commit {commit[:12]} on main, with changes (" in lab.ok("show", str(dirty))
    assert lab.run("show", str(clean), "--diff").stderr.startswith("the tracked files of job")
    patch = lab.ok("show", str(dirty), "--diff")
    repo.git("checkout", "-q", "--", ".")
    (lab.folder / "patch").write_text(patch)
    repo.git("apply", str(lab.folder / "patch"))
    assert (repo.folder / "train.py").read_text() == "2\n"
    diffs = json.loads(lab.ok("show", f"{clean}-{dirty}", "--diff", "--json"))["diffs"]
    assert diffs[1] == {"job": dirty, "diff": patch, "problem": None}
    assert diffs[0]["diff"] is None and diffs[0]["problem"]


def test_equal_states_are_stored_once_and_removed_with_their_jobs(
    lab: Lab, repo: GitRepository
) -> None:
    lines = "true\n" * 50 + "true #stoker --gpus 0\n"
    lab.ok("submit", "--hold", "-", input=lines, cwd=repo.folder)
    held(lab, lab.folder, "-C", str(repo.folder))
    assert states(lab) == 1
    repo.write("train.py", "2\n")
    last = held(lab, repo.folder)
    assert states(lab) == 2
    lab.ok("cancel", "-y", "1-52")
    lab.ok("rm", "-y", "1-51")
    assert states(lab) == 2
    lab.ok("rm", "-y", "52")
    assert states(lab) == 1
    lab.ok("cancel", str(last))
    lab.ok("clean", "-y")
    assert states(lab) == 0


def test_diff_on_a_terminal_is_colored_and_escaped(lab: Lab, repo: GitRepository) -> None:
    repo.write("train.py", "a\tb\x1b[2J\n")
    job = held(lab, repo.folder)
    leader, follower = pty.openpty()
    env = {**lab.env, "TERM": "xterm"}
    env.pop("NO_COLOR")
    subprocess.run([*lab.command, "show", str(job), "--diff"], env=env, stdout=follower, check=True)
    os.close(follower)
    shown = os.read(leader, 65536)
    os.close(leader)
    assert b"\x1b[32m+a\tb\\x1b[2J\x1b[0m" in shown
    assert b"\x1b[31m-1\x1b[0m" in shown
    assert b"\x1b[2J" not in shown.replace(b"\\x1b[2J", b"")


def test_rerun_and_edit_record_the_code_of_their_moment(lab: Lab, repo: GitRepository) -> None:
    job = held(lab, repo.folder)
    lab.ok("cancel", str(job))
    repo.write("train.py", "2\n")
    lab.ok("rerun", "--hold", str(job))
    again = code(lab, job + 1)
    assert again is not None and again["dirty"] is True
    lab.ok("edit", str(job + 1), "--cwd", str(lab.folder))
    assert code(lab, job + 1) is None


def test_trials_of_a_sweep_share_one_state(lab: Lab, repo: GitRepository) -> None:
    lab.ok("sweep", "--hold", "-n", "s", "true {x}", "x=1,2,3", cwd=repo.folder)
    assert states(lab) == 1 and code(lab, 3) is not None


def test_attempt_records_host_and_python_of_the_job(lab: Lab) -> None:
    python = os.path.realpath(sys.executable)
    waits = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)"
    job = lab.submit(python, "-c", waits)
    lab.wait_until(lambda: lab.state(job) == "running")
    (lab.folder / "go").touch()
    assert lab.wait(job) == 0
    attempt = json.loads(lab.ok("show", str(job), "--json"))["jobs"][0]["history"][0]
    machine = attempt["machine"]
    assert machine["host"] == os.uname().nodename and machine["gpu_model"] == "simulated"
    if python_of_path(python):
        assert (machine["python_of"], machine["python"]) == ("job", python_of_path(python))
