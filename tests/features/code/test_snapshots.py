"""`--snapshot`: jobs run in a copy of their code as it was at submit."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.features.code.git_repository import GitRepository
from tests.lab import Lab

TRAIN = 'cat lib/value; pwd; echo "$STOKER_SUBMIT_DIR"; cat ../data/d; echo out > ../data/out'


@pytest.fixture
def repo(lab: Lab) -> GitRepository:
    repo = GitRepository(lab.folder / "repo")
    repo.write(".gitignore", "data/\n")
    repo.write("data/d", "data\n")
    repo.write("sub/train.sh", f"{TRAIN}\n")
    repo.write("sub/lib/value", "1\n")
    repo.commit()
    return repo


def trees(lab: Lab) -> list[str]:
    folder = lab.state_dir / "code/trees"
    return sorted(os.listdir(folder)) if folder.is_dir() else []


def error_of(lab: Lab, *words: str) -> str:
    done = lab.run(*words)
    assert done.returncode != 0 and done.stdout == "" and "Traceback" not in done.stderr
    return done.stderr


def held(lab: Lab, folder: Path, *words: str, **env: str) -> int:
    return int(lab.ok("submit", "--hold", "-q", *words, "true", cwd=folder, **env))


def test_job_runs_in_the_code_of_its_submit(lab: Lab, repo: GitRepository) -> None:
    sub = repo.folder / "sub"
    words = ("submit", "-q", "--hold", "--snapshot", "-o", "log.txt", "sh train.sh")
    job = int(lab.ok(*words, cwd=sub))
    repo.write("sub/lib/value", "2\n")
    again = int(lab.ok(*words[:-2], "again.txt", words[-1], cwd=sub))
    lab.ok("release", f"{job}-{again}")
    assert lab.wait(job, again) == 0
    tree = lab.state_dir / "code/trees" / str(lab.job(job)["snapshot"]) / "sub"
    assert (sub / "log.txt").read_text() == f"1\n{tree}\n{sub}\ndata\n"
    assert (sub / "again.txt").read_text().startswith("2\n")
    assert (repo.folder / "data/out").read_text() == "out\n"
    shown = lab.ok("show", str(job))
    assert f"directory   {sub}\n" in shown and f"snapshot    {tree}\n" in shown
    assert len(trees(lab)) == 2
    lab.ok("rm", "-y", str(job))
    assert len(trees(lab)) == 1
    lab.ok("clean", "-y")
    assert trees(lab) == [] and not any((lab.state_dir / "code/objects").iterdir())


def test_jobs_of_a_batch_share_one_snapshot(lab: Lab, repo: GitRepository) -> None:
    lab.ok("submit", "--hold", "--snapshot", "-", input="true\n" * 20, cwd=repo.folder)
    held(lab, repo.folder / "sub", "--snapshot")
    assert len(trees(lab)) == 1
    assert lab.job(21)["cwd"] == str(repo.folder / "sub")


def test_folder_without_repository_cannot_have_a_snapshot(lab: Lab) -> None:
    error = error_of(lab, "submit", "--snapshot", "true")
    assert f"a snapshot needs a git repository, and `{lab.folder}` is in none" in error
    assert "hint: run `git init` there" in error
    assert error_of(lab, "submit", "--snapshot", "--no-snapshot", "true").startswith(
        "error: `--snapshot` and `--no-snapshot` exclude each other"
    )
    assert "`--snapshot`" in error_of(lab, "run", "--snapshot", "true")


def test_large_code_is_refused_with_the_largest_files(lab: Lab, repo: GitRepository) -> None:
    repo.write("model.bin", "x" * 3000)
    repo.commit()
    done = lab.run("submit", "--snapshot", "true", cwd=repo.folder, STOKER_SNAPSHOT_LIMIT="2000")
    assert done.returncode == 2
    assert "and the limit is 2.0 KiB; the largest files: model.bin (2.9 KiB), " in done.stderr
    assert "ignore files of data with .gitignore" in done.stderr
    assert trees(lab) == []


def test_setting_always_takes_snapshots_where_there_is_a_repository(
    lab: Lab, repo: GitRepository
) -> None:
    env = {"STOKER_SNAPSHOT": "always"}
    assert lab.job(held(lab, repo.folder, **env))["snapshot"] is not None
    assert lab.job(held(lab, repo.folder, "--no-snapshot", **env))["snapshot"] is None
    assert lab.job(held(lab, lab.folder, **env))["snapshot"] is None
    assert "invalid value" in lab.run("ls", STOKER_SNAPSHOT="perhaps").stderr


def test_setting_ask_does_not_snapshot_without_a_terminal_and_says_so(
    lab: Lab, repo: GitRepository
) -> None:
    clean = lab.run("submit", "--hold", "true", cwd=repo.folder, STOKER_SNAPSHOT="ask")
    assert "snapshot" not in clean.stderr
    repo.write("sub/lib/value", "2\n")
    dirty = lab.run("submit", "--hold", "true", cwd=repo.folder, STOKER_SNAPSHOT="ask")
    assert "no snapshot is taken, because there is no terminal to ask on" in dirty.stderr
    assert lab.job(2)["snapshot"] is None


@pytest.mark.parametrize(("answer", "has_snapshot"), [("\n", True), ("n\n", False)])
def test_setting_ask_asks_on_a_terminal_if_the_code_has_changed(
    lab: Lab, repo: GitRepository, answer: str, has_snapshot: bool
) -> None:
    repo.write("sub/lib/value", "2\n")
    leader, follower = pty.openpty()
    os.write(leader, answer.encode())
    subprocess.run(
        [*lab.command, "submit", "--hold", "true"], cwd=repo.folder,
        env={**lab.env, "STOKER_SNAPSHOT": "ask"}, stdin=follower, stdout=follower,
        stderr=follower, check=True,
    )  # fmt: skip
    os.close(follower)
    assert b"has changes that are not committed; run in a snapshot of it?" in os.read(leader, 9999)
    os.close(leader)
    assert (lab.job(1)["snapshot"] is not None) == has_snapshot


def test_rerun_takes_a_new_snapshot_and_same_code_the_old_one(
    lab: Lab, repo: GitRepository
) -> None:
    job = held(lab, repo.folder, "--snapshot")
    lab.ok("cancel", str(job))
    repo.write("sub/lib/value", "2\n")
    lab.ok("rerun", "--hold", str(job))
    lab.ok("rerun", "--hold", "--same-code", str(job))
    first, new, same = (lab.job(id) for id in (job, job + 1, job + 2))
    assert first["snapshot"] == same["snapshot"] != new["snapshot"]
    assert {one["cwd"] for one in (first, new, same)} == {str(repo.folder)}
    subprocess.run(["rm", "-rf", str(lab.state_dir / "code/trees")], check=True)
    assert "the snapshot of job 1 was removed" in error_of(lab, "rerun", "--same-code", str(job))


def test_same_code_without_snapshot_refuses_changed_files(lab: Lab, repo: GitRepository) -> None:
    repo.write("sub/lib/value", "2\n")
    job = held(lab, repo.folder)
    outside = held(lab, lab.folder)
    lab.ok("cancel", "-y", str(job), str(outside))
    repo.commit()  # the content is the same
    lab.ok("rerun", "--hold", "--same-code", str(job))
    repo.write("sub/lib/value", "3\n")
    repo.write("sub/train.sh", "echo\n")
    error = error_of(lab, "rerun", "--same-code", str(job))
    assert "the code has changed since job 1 was submitted: sub/lib/value and 1 more file" in error
    error = error_of(lab, "rerun", "--same-code", str(outside))
    assert "job 2 has no snapshot and no record of its code" in error


def test_trials_of_a_sweep_share_the_snapshot_of_its_start(lab: Lab, repo: GitRepository) -> None:
    words = ("sweep", "-n", "s", "--snapshot", "--hold", "true {x}")
    lab.ok(*words, "x=1,2", cwd=repo.folder)
    first = lab.job(1)["snapshot"]
    assert first is not None and lab.job(2)["snapshot"] == first
    repo.write("sub/lib/value", "2\n")
    lab.ok(*words, "x=1,2,3", cwd=repo.folder)
    assert lab.job(3)["snapshot"] not in (None, first)
    lab.ok("cancel", "-y", "1-3")
    lab.ok("rm", "-y", "1-3")
    assert len(trees(lab)) == 1  # `sweep resume` would use it
    lab.ok("sweep", "rm", "s")
    lab.ok("clean", "-y")
    assert trees(lab) == []


def test_python_function_runs_in_a_snapshot(
    new_lab: Callable[..., Lab], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = new_lab(devices=0)
    repo = GitRepository(lab.folder / "repo")
    repo.write("tasks.py", "import value\ndef f():\n    return value.X, __file__\n")
    repo.write("value.py", "X = 1\n")
    repo.commit()
    program = (
        "import stoker, tasks\n"
        "job = stoker.job(tasks.f, gpus=0, snapshot=True, hold=True).submit()\n"
        "open('value.py', 'w').write('X = 2\\n')\n"
        "stoker.Queue().release(job.id)\n"
        "import json; print(json.dumps(job.result()))\n"
    )
    done = subprocess.run(
        [lab.command[0], "-c", program], cwd=repo.folder, env=lab.env, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    value, place = json.loads(done.stdout)
    assert value == 1 and place == f"{lab.state_dir}/code/trees/{trees(lab)[0]}/tasks.py"


def test_job_of_a_snapshot_submits_jobs_into_it(lab: Lab, repo: GitRepository) -> None:
    stoker = " ".join(lab.command)
    command = f"{stoker} submit -q --hold true; cd /; {stoker} submit -q --hold true"
    job = int(lab.ok("submit", "-q", "--snapshot", command, cwd=repo.folder))
    assert lab.wait(job) == 0
    assert lab.job(job + 1)["snapshot"] == lab.job(job)["snapshot"]
    assert lab.job(job + 1)["cwd"] == str(repo.folder)
    assert (lab.job(job + 2)["snapshot"], lab.job(job + 2)["cwd"]) == (None, "/")


def test_files_that_a_job_creates_in_its_snapshot_are_kept(lab: Lab, repo: GitRepository) -> None:
    job = int(lab.ok("submit", "-q", "--snapshot", "echo w > model.pt", cwd=repo.folder))
    assert lab.wait(job) == 0
    kept = lab.state_dir / "code/kept" / str(lab.job(job)["snapshot"])
    done = lab.run("rm", "-y", str(job))
    assert done.stderr == f"kept files that jobs created in their snapshot: {kept}\n"
    assert (kept / "model.pt").read_text() == "w\n"
