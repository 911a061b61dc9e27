"""conftest.py: CI must not skip anything but the tests of a real GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BODY = """
import pytest

def test_passes():
    pass

def test_needs_something():
    pytest.skip("needs something")

@pytest.mark.xfail
def test_fails_as_expected():
    raise ValueError
"""
MODULE = 'import pytest\npytest.importorskip("no_such_module_at_all")\n'


def run(top: Path, name: str, body: str, **env: str) -> str:
    """The output of pytest for one file in the folder `name`, with the rules of conftest.py."""
    folder = top / name
    folder.mkdir(parents=True)
    (folder / "test_one.py").write_text(body)
    settings = top / "pytest.ini"
    settings.write_text("[pytest]\n")
    words = ["-m", "pytest", "-p", "conftest", "-p", "no:xdist", "-p", "no:cacheprovider"]
    outer = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    outer.pop("CI", None)
    done = subprocess.run(
        [sys.executable, *words, "-c", str(settings), str(folder)],
        cwd=ROOT, env={**outer, **env}, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout


@pytest.mark.parametrize("body", [BODY, MODULE])
def test_skip_is_a_failure_in_ci(tmp_path: Path, body: str) -> None:
    text = run(tmp_path, "some", body, CI="true")
    assert "skipped, but CI=true does not allow skips" in text
    assert "1 failed, 1 passed, 1 xfailed" in text or "1 error" in text
    assert " skipped" not in text.splitlines()[-1]


def test_skip_is_one_line_elsewhere(tmp_path: Path) -> None:
    text = run(tmp_path, "some", BODY)
    assert "1 passed, 1 skipped, 1 xfailed" in text
    assert "1 tests skipped (1: needs something)" in text


def test_real_gpu_may_be_missing_in_ci(tmp_path: Path) -> None:
    text = run(tmp_path, "tests/hardware", BODY, CI="true")
    assert "1 passed, 1 skipped, 1 xfailed" in text


def test_suite_in_the_background_of_a_script_still_gets_its_signals(tmp_path: Path) -> None:
    body = """
import signal, subprocess, sys

def test_child_dies_of_signals():
    for number in (signal.SIGHUP, signal.SIGINT):
        child = subprocess.Popen(["sleep", "600"])
        child.send_signal(number)
        assert child.wait() == -number
"""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_one.py").write_text(body)
    words = f"-m pytest -p conftest -p no:xdist -c {tmp_path}/pytest.ini {tmp_path}/test_one.py"
    done = subprocess.run(
        ["nohup", "sh", "-c", f"{sys.executable} {words} & wait $!"],
        cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
