"""`make demo`: the commands that it prints at the end work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.lab import Lab

ROOT = Path(__file__).parents[4]


def test_commands_shown_by_the_demo_work(lab: Lab) -> None:
    lab.env |= {"TMPDIR": str(lab.folder)}

    def shell(text: str) -> str:
        done = subprocess.run(
            text, shell=True, cwd=ROOT, env=lab.env, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{text}\n{done.stderr}"
        return done.stdout

    shown = shell(f"{sys.executable} examples/demo.py")
    run, plot, results, submit, log = (
        line.removeprefix("$ ") for line in shown.splitlines() if line.startswith("$ ")
    )
    shell(run)
    assert "best" in shell(plot)
    assert len(shell(results).splitlines()) == 4
    shell(submit)
    assert "stoker: y=" in shell(log)
