"""The runner keeps the environments of a limited number of jobs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from stoker.engine.supervisor.spawn import MAX_CONTEXTS
from tests.lab import Lab

_COUNT = 3 * MAX_CONTEXTS
_BYTES = 120_000
_SUBMIT = f"""
import os, stoker
for number in (*range({_COUNT}), 0):
    os.environ["NUMBER"] = str(number)
    os.environ["LARGE"] = str(number) * ({_BYTES} // len(str(number)))
    stoker.submit("test ${{#LARGE}} -gt 100000 && echo $NUMBER >> numbers", gpus=0)
"""


def test_runner_does_not_keep_the_environment_of_every_job(lab: Lab) -> None:
    assert lab.wait(lab.submit("--gpus", "0", "true")) == 0
    before = _memory(lab)
    subprocess.run([sys.executable, "-c", _SUBMIT], env=lab.env, cwd=lab.folder, check=True)
    assert lab.wait() == 0
    numbers = (lab.folder / "numbers").read_text().split()
    assert sorted(map(int, numbers)) == [0, *range(_COUNT)]
    # The text of an environment and its encoded copy.
    assert _memory(lab) - before < 2 * MAX_CONTEXTS * 2 * _BYTES


def _memory(lab: Lab) -> int:
    text = Path(f"/proc/{lab.runner_pid()}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) * 1024
