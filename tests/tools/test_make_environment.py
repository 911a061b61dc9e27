"""tools/make_environment.py: what `make demo` runs first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "make_environment.py"
# As on Debian without python3-venv, which has `venv` but not `ensurepip`.
WITHOUT_ENSUREPIP = (
    "import runpy, sys; sys.modules['ensurepip'] = sys.modules['virtualenv'] = None;"
    "sys.argv = ['make_environment.py', sys.argv[1]];"
    f"runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
)


def make(folder: Path, *python: str, **env: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, *(python or [str(SCRIPT)]), str(folder)]
    return subprocess.run(words, capture_output=True, text=True, env={**os.environ, **env})


def test_python_without_ensurepip_leaves_nothing_and_names_one_command(tmp_path: Path) -> None:
    folder = tmp_path / ".venv"
    done = make(folder, "-c", WITHOUT_ENSUREPIP, PATH=str(tmp_path))
    assert done.returncode == 1
    problem, hint = done.stderr.splitlines()
    assert problem.startswith("error: ") and "ensurepip" in problem
    assert hint.startswith("hint: ")
    assert not folder.exists()


@pytest.mark.parametrize("made", ["by venv", "by this script"])
def test_half_made_environment_is_made_again(tmp_path: Path, made: str) -> None:
    folder = tmp_path / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    if made == "by this script":
        (folder / "unfinished").touch()
        (folder / "lib" / "half").touch()
    done = make(folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "complete").exists() and not (folder / "unfinished").exists()
    assert not (folder / "lib" / "half").exists()
    subprocess.run([folder / "bin" / "python", "-m", "pip", "--version"], check=True)
    before = (folder / "pyvenv.cfg").stat()
    assert make(folder).returncode == 0
    after = (folder / "pyvenv.cfg").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_environment_whose_python_is_gone_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / ".venv"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(tmp_path / "gone")
    (folder / "complete").touch()
    done = make(folder, "-c", WITHOUT_ENSUREPIP, PATH=str(tmp_path))
    assert "ensurepip" in done.stderr  # it was recognized as broken
    assert (folder / "complete").exists()  # and kept, because no other one can be made


def test_folder_that_is_not_an_environment_is_refused_and_kept(tmp_path: Path) -> None:
    folder = tmp_path / ".venv"
    (folder / "lib/python3.11/site-packages/torch").mkdir(parents=True)
    (folder / "pyvenv.cfg").touch()
    done = make(folder)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"error: `{folder}` is not an environment with pip",
        f"hint: rm -r {folder}",
    ]
    assert (folder / "lib/python3.11/site-packages/torch").is_dir()
