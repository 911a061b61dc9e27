"""The first commands of the README work as typed in a fresh clone, on a host without GPUs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab import Lab

ROOT = Path(__file__).parents[2]


def commands(block: int) -> list[str]:
    """The commands of a console block of the README, from 0."""
    text = (ROOT / "README.md").read_text().split("```console\n")[block + 1].partition("```")[0]
    return [line[2:] for line in text.splitlines() if line.startswith("$ ")]


@pytest.mark.parametrize("block", [1, 3])
def test_commands_of_the_readme_work_as_typed(lab: Lab, block: int) -> None:
    shutil.copytree(ROOT / "examples", lab.folder / "examples")
    bin_folder = lab.folder / "bin"
    bin_folder.mkdir()
    (bin_folder / "stoker").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m stoker "$@"\n')
    (bin_folder / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    for program in bin_folder.iterdir():
        program.chmod(0o755)
    env = {**lab.env, "PATH": f"{bin_folder}:{os.environ['PATH']}"}
    typed = commands(block)
    assert len(typed) > 2
    name = ""
    for command in typed:
        # A sweep gets a random name unless it is given one.
        text = command.replace("brave-otter", name) if name else command
        done = subprocess.run(
            text, shell=True, env=env, cwd=lab.folder, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        if command.startswith("stoker sweep"):
            name = done.stdout.split()[1].rstrip(":")
            lab.wait()
