"""tests/second_run.py: a few tests that failed are repeated alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UNSTABLE = """
import os

def test_passes_the_second_time():
    was_here = os.path.exists("here")
    open("here", "w").close()
    assert was_here

def test_passes():
    assert not os.path.exists("again")
    open("again", "w").close()
"""
BROKEN = "def test_fails(): assert False\n"
MANY = "".join(f"def test_{n}(): assert False\n" for n in range(6))


def run(folder: Path, body: str) -> subprocess.CompletedProcess[str]:
    """Run one file of tests, then the second run."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_one.py").write_text(body)
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    env["PYTHONPATH"] = str(ROOT)
    first = subprocess.run([sys.executable, "-m", "pytest", "-n0"], cwd=folder, env=env)
    assert first.returncode == 1
    return subprocess.run(
        [sys.executable, "-m", "tests.second_run"], cwd=folder, env=env, capture_output=True,
        text=True,
    )  # fmt: skip


def test_test_that_passes_alone_is_listed_as_unstable(tmp_path: Path) -> None:
    done = run(tmp_path, UNSTABLE)
    assert done.returncode == 1  # the run has failed in any case
    assert "1 passed" in done.stdout  # only the one that failed was repeated
    last = "unstable: failed in the parallel run, passed alone:\n"
    assert done.stdout.endswith(f"{last}  test_one.py::test_passes_the_second_time\n")


def test_test_that_fails_again_fails_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, BROKEN)
    assert done.returncode == 1
    assert done.stdout.endswith("failed twice:\n  test_one.py::test_fails\n")


def test_many_failures_are_not_repeated(tmp_path: Path) -> None:
    done = run(tmp_path, MANY)
    assert done.returncode == 1
    assert done.stdout == "6 tests failed and are not repeated; the limit is 5\n"
