"""`submit --sync`: the folder is copied to the box; nothing that jobs made there is lost."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.helpers import refused
from tests.features.code.git_repository import GitRepository
from tests.features.remote.ssh_box import SshBox


@pytest.fixture(params=["rsync", "tar"])
def way(request: pytest.FixtureRequest, box: SshBox) -> str:
    """How files are copied; without rsync on the box, by tar."""
    if request.param == "tar":
        tools = box.folder / "tools"
        tools.mkdir()
        for name in os.listdir("/usr/bin"):
            if name != "rsync":
                (tools / name).symlink_to(f"/usr/bin/{name}")
        box.set_environment(PATH=f"{box.folder}/there/bin:{tools}")
        (box.home / ".profile").write_text(f"PATH={box.folder}/there/bin:{tools}\n")
    return str(request.param)


@pytest.fixture
def project(box: SshBox) -> Path:
    folder = box.here.folder / "my project"
    (folder / "src").mkdir(parents=True)
    (folder / "run.sh").write_text("#!/bin/sh\ncat src/data.txt\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "src" / "data.txt").write_text("one\n")
    (folder / "link").symlink_to("src/data.txt")
    return folder


def sync(box: SshBox, project: Path, *command: str) -> tuple[Path, str]:
    """Submit a command with the folder; returns the folder on the box, and the output."""
    done = box.run("submit", "-q", "--sync", ".", *command, cwd=project)
    assert done.returncode == 0, done.stderr
    job = int(done.stdout)
    assert box.there.wait(job) == 0, box.there.log(job)
    return Path(box.there.job(job)["cwd"]), box.there.log(job)


def files(folder: Path) -> set[str]:
    found = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return {str(path.relative_to(folder)) for path in found}


def test_command_runs_in_a_copy_of_the_folder(box: SshBox, project: Path, way: str) -> None:
    there, output = sync(box, project, "./run.sh")
    assert output == "one\n"
    assert there.parent == box.home / "stoker"
    assert there.name.startswith("my project-")
    assert files(there) == {"run.sh", "src/data.txt", "link"}
    assert os.readlink(there / "link") == "src/data.txt"
    assert os.access(there / "run.sh", os.X_OK)


def test_changes_and_removals_are_copied(box: SshBox, project: Path, way: str) -> None:
    (project / "old").mkdir()
    (project / "old" / "file").touch()
    there, _ = sync(box, project, "./run.sh")
    assert (there / "old" / "file").exists()
    (project / "src" / "data.txt").write_text("two, longer\n")
    (project / "old" / "file").unlink()
    (project / "link").unlink()
    (project / "link").symlink_to("run.sh")
    assert sync(box, project, "./run.sh") == (there, "two, longer\n")
    assert not (there / "old").exists()
    assert os.readlink(there / "link") == "run.sh"


def test_only_changed_files_are_copied_again(box: SshBox, project: Path) -> None:
    first = box.run("submit", "--sync", ".", "--hold", "true", cwd=project)
    assert first.stderr.startswith("3 files of 3 copied to box:~/stoker/my project-")
    (project / "run.sh").write_text("true\n")
    again = box.run("submit", "--sync", ".", "--hold", "true", cwd=project)
    assert again.stderr.startswith("1 file of 3 copied to box:")


def test_files_of_jobs_stay_on_the_box(box: SshBox, project: Path, way: str) -> None:
    script = "mkdir -p out src/old; echo result > out/r.csv; echo result > src/old/r.csv"
    there, _ = sync(box, project, script)
    (project / "src" / "data.txt").unlink()
    sync(box, project, "true")
    assert (there / "out" / "r.csv").read_text() == "result\n"
    assert (there / "src" / "old" / "r.csv").read_text() == "result\n"
    assert not (there / "src" / "data.txt").exists()


def test_copy_that_a_job_changed_is_not_removed_or_overwritten(
    box: SshBox, project: Path, way: str
) -> None:
    (project / "a").write_text("mine\n")
    (project / "b").write_text("mine\n")
    (project / "c").write_text("mine\n")
    there, _ = sync(box, project, "for f in a b c d; do echo result of $f > $f; done")
    (project / "a").unlink()  # removed here, changed there
    (project / "b").write_text("new here\n")  # changed on both machines
    (project / "d").write_text("new here\n")  # made on both machines
    done = box.run("submit", "-q", "--sync", ".", "true", cwd=project)
    assert "changed on the box, and kept there as b.before-sync, d.before-sync" in done.stderr
    assert {path.name: path.read_text() for path in there.glob("[a-d]*")} == {
        "a": "result of a\n", "b": "new here\n", "b.before-sync": "result of b\n",
        "c": "result of c\n", "d": "new here\n", "d.before-sync": "result of d\n",
    }  # fmt: skip


def test_files_that_git_ignores_stay_here(box: SshBox, project: Path) -> None:
    git = ["git", "-C", str(project), "-c", "user.name=n", "-c", "user.email=e"]
    (project / ".gitignore").write_text("*.ckpt\n.venv/\n")
    (project / "model.ckpt").touch()
    (project / ".venv").mkdir()
    (project / ".venv" / "python").touch()
    (project / "gone.py").touch()
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "all"], check=True)
    (project / "gone.py").unlink()  # git still lists it
    (project / "new.py").touch()  # untracked
    (project / "other").mkdir()
    subprocess.run([*git[:2], str(project / "other"), "init", "-q"], check=True)
    (project / "other" / "file").touch()
    there, _ = sync(box, project, "true")
    assert files(there) == {
        ".gitignore", "run.sh", "src/data.txt", "link", "new.py", "other/file",
    }  # fmt: skip


def test_git_folder_is_not_copied_without_git(box: SshBox, project: Path) -> None:
    (project / ".git").mkdir()
    (project / ".git" / "config").touch()  # not a repository
    there, _ = sync(box, project, "true")
    assert files(there) == {"run.sh", "src/data.txt", "link"}


def test_pulled_results_and_virtual_environments_are_not_sent(box: SshBox, project: Path) -> None:
    (project / ".venv").mkdir()
    (project / ".venv" / ".gitignore").write_text("# Created by a tool\n*\n")
    (project / "kept").mkdir()
    (project / "kept" / ".gitignore").write_text("*.o\n")
    there, _ = sync(box, project, "true")
    box.ok("pull", cwd=project)
    assert (project / "stoker-jobs" / "1" / "job.json").exists()
    sync(box, project, "true")
    assert files(there) == {"run.sh", "src/data.txt", "link", "kept/.gitignore"}


def test_current_folder_inside_of_the_copied_one_is_kept(box: SshBox, project: Path) -> None:
    there, output = sync(box, project / "src", "pwd")
    assert output == f"{there}\n"
    done = box.run("submit", "-q", "--sync", "..", "pwd", cwd=project / "src")
    job = int(done.stdout)
    box.there.wait(job)
    assert Path(box.there.log(job).strip()).name == "src"
    assert box.there.log(job).strip().rpartition("/")[0].startswith(f"{box.home}/stoker/my project")


def test_folder_for_copies_can_be_chosen(box: SshBox, project: Path) -> None:
    box.here.ok("context", "add", "lab", "--host", "box", "--sync-dir", f"{box.home}/copies")
    done = box.here.run("--host", "lab", "submit", "-q", "--sync", ".", "true", cwd=project)
    job = int(done.stdout)
    assert box.there.job(job)["cwd"].startswith(f"{box.home}/copies/my project-")


def test_job_file_and_sweep_file_are_found_in_the_copy(box: SshBox, project: Path) -> None:
    (project / "jobs.txt").write_text("cat src/data.txt\ncat src/data.txt\n")
    ids = box.ok("submit", "-q", "--sync", ".", "-f", "jobs.txt", cwd=project).split()
    assert box.there.wait(*map(int, ids)) == 0
    assert box.there.log(int(ids[0])) == "one\n"
    (project / "search.toml").write_text(
        'command = "cat src/data.txt; echo {a}"\n[params]\na = [1]\n'
    )
    started = json.loads(box.ok("sweep", "--json", "--sync", ".", "search.toml", cwd=project))
    assert box.there.wait(*started["jobs"]) == 0
    assert box.there.log(started["jobs"][0]) == "one\n1\n"


def test_link_on_the_box_to_another_place_is_not_followed(
    box: SshBox, project: Path, way: str
) -> None:
    there, _ = sync(box, project, "true")
    elsewhere = box.folder / "elsewhere"
    (there / "src").rename(elsewhere)
    (there / "src").symlink_to(elsewhere)
    (project / "src" / "data.txt").write_text("changed\n")
    done = box.run("submit", "-q", "--sync", ".", "true", cwd=project)
    assert "not copied, because a link on the box leads elsewhere: src/data.txt" in done.stderr
    (project / "src" / "data.txt").unlink()
    box.ok("submit", "-q", "--sync", ".", "true", cwd=project)
    assert (elsewhere / "data.txt").read_text() == "one\n"


def test_cut_while_files_are_copied_leaves_the_folder_complete(
    box: SshBox, project: Path, way: str
) -> None:
    (project / "big").write_bytes(os.urandom(3 << 20))
    verb = "sync"
    held = box.hold("after", verb)  # after the plan
    process = box.popen(
        "submit", "-q", "--sync", str(project), "--", "sha256sum", "big", stderr=None
    )
    box.wait_until_held()
    box.cut()
    held.unlink()
    out, _ = process.communicate()
    job = int(out)
    assert box.there.wait(job) == 0
    there = Path(box.there.job(job)["cwd"])
    assert (there / "big").read_bytes() == (project / "big").read_bytes()
    assert files(there) == {"run.sh", "src/data.txt", "link", "big"}  # no copies kept aside


def test_name_that_is_not_utf8_is_copied(box: SshBox, project: Path, way: str) -> None:
    (project / os.fsdecode(b"caf\xe9")).write_text("x\n")
    there, _ = sync(box, project, "true")
    assert (there / os.fsdecode(b"caf\xe9")).read_text() == "x\n"


def test_sync_without_a_box_and_without_a_command_are_usage_errors(box: SshBox) -> None:
    refused(
        box.here.run("submit", "--sync", ".", "true"), 2,
        "`--sync` copies a folder to another machine, but no machine is given",
        "example: stoker --host gpu-box submit --sync . python train.py",
    )  # fmt: skip
    refused(box.run("submit", "--sync", "."), 2, "no command given",
            "example: stoker submit --sync . python train.py")  # fmt: skip
    refused(box.run("submit", "--sync", "nowhere", "true"), 2,
            "`--sync nowhere`: there is no such folder")  # fmt: skip


def test_local_job_file_is_mentioned_when_the_box_has_none(box: SshBox) -> None:
    (box.here.folder / "jobs.txt").write_text("true\n")
    done = box.run("submit", "-f", "jobs.txt")
    assert done.returncode == 2
    assert "note: paths are on box; to send the file of this machine: " in done.stderr
    text = (box.here.folder / "jobs.txt").read_text()
    assert box.ok("submit", "-q", "-f", "-", input=text) == "1\n"


def test_snapshot_is_taken_on_the_other_machine(box: SshBox) -> None:
    repository = GitRepository(box.folder / "code")
    repository.commit(main_sh="echo one")
    words = ("submit", "-q", "--hold", "--snapshot", "-C", str(repository.folder), "sh main.sh")
    done = box.run(*words)
    assert done.returncode == 0, done.stderr
    repository.write("main.sh", "echo two")
    box.there.ok("release", done.stdout.strip())
    assert box.there.wait(1) == 0
    assert box.there.log(1) == "one\n"


def test_synced_folder_cannot_have_a_snapshot(box: SshBox, project: Path) -> None:
    GitRepository(project).commit()
    done = box.run("submit", "--sync", ".", "--snapshot", "./run.sh", cwd=project)
    assert done.returncode == 2
    assert "error: a snapshot needs a git repository" in done.stderr
    assert box.there.states() == {}
