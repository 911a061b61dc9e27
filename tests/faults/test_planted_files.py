"""In a world-writable folder, files of other users are neither executed nor written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.lab import Lab

OTHER = 12345
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def shared_folder(lab: Lab) -> Path:
    folder = lab.folder / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def test_long_shell_command_leaves_no_script_next_to_the_output(lab: Lab) -> None:
    folder = shared_folder(lab)
    (lab.folder / "jobs").write_text(
        f": {'x' * 140_000}; echo $# ran; exit 3 #stoker -o shared/out\n"
    )
    job = int(lab.ok("submit", "-q", "-f", "jobs"))
    assert lab.wait(job) == 3
    assert (folder / "out").read_text() == "0 ran\n"
    assert os.listdir(folder) == ["out"]


def test_long_shell_command_ignores_a_planted_script(lab: Lab) -> None:
    folder = shared_folder(lab)
    for attempt in range(1, 4):
        (folder / f"out.{attempt}.sh").symlink_to(folder / "planted")
    (folder / "planted").write_text("echo planted; exit 9\n")
    (lab.folder / "jobs").write_text(f": {'x' * 140_000}; exit 3 #stoker -o shared/out\n")
    assert lab.wait(int(lab.ok("submit", "-q", "-f", "jobs"))) == 3
    assert (folder / "planted").read_text() == "echo planted; exit 9\n"


def test_long_shell_command_runs_in_the_foreground(lab: Lab) -> None:
    (lab.folder / "jobs").write_text(f": {'x' * 140_000}; echo ran > ran\n")
    lab.ok("run", "jobs")
    assert (lab.folder / "ran").read_text() == "ran\n"


@needs_root
@pytest.mark.parametrize("kind", ("symlink", "file", "hard link"))
def test_output_that_another_user_planted_is_refused(lab: Lab, kind: str) -> None:
    folder = shared_folder(lab)
    os.chown(folder, OTHER + 1, OTHER + 1)
    mine, out = lab.folder / "mine", folder / "out"
    mine.write_text("precious\n")
    if kind == "symlink":
        out.symlink_to(mine)
    elif kind == "file":
        out.touch()
    else:
        out.hardlink_to(mine)
    if kind != "hard link":
        os.chown(out, OTHER, OTHER, follow_symlinks=False)
    job = lab.submit("-o", str(out), "echo overwritten")
    assert lab.wait(job) == 126
    assert lab.job(job)["cause"] == "start_failed"
    assert "in a world-writable folder" in lab.job(job)["detail"]
    assert mine.read_text() == "precious\n"


def test_own_links_and_files_in_a_shared_folder_are_accepted_as_output(lab: Lab) -> None:
    folder = shared_folder(lab)
    (folder / "link").symlink_to(lab.folder / "target")
    (folder / "old").write_text("old\n")
    for name in ("link", "old", "new"):
        assert lab.wait(lab.submit("-o", str(folder / name), f"echo {name}")) == 0
        assert (folder / name).read_text() == f"{name}\n"
