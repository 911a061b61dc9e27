"""Doors as users meet them: commands on the PATH, no configuration, no GPU that nobody made.

door = new_door("simple_gpu_scheduler")
done = door.run("--gpus", "0", input="echo hello\\n")
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.helpers import Gate
from tests.gpus.conftest import host, new_host, nvml_library
from tests.lab import Lab

__all__ = ["host", "new_host", "nvml_library"]  # fixtures

# What the console scripts of the same names do.
_MODULES = {
    "simple_gpu_scheduler": "stoker.compat.simple_gpu_scheduler.main",
    "simple_hypersearch": "stoker.compat.simple_gpu_scheduler.hypersearch",
}


def install(folder: Path, name: str, module: str) -> None:
    """A console script."""
    folder.mkdir(exist_ok=True)
    script = folder / name
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
    script.chmod(0o755)


class Door(Lab):
    """A lab whose command is a door; `run`, `ok` and `popen` call it."""

    def __init__(self, folder: Path, name: str, module: str, **env: str) -> None:
        super().__init__(folder, None, **env)
        self.command = [sys.executable, "-m", module]
        self.bin = folder / "bin"
        for one, where in {**_MODULES, name: module}.items():
            install(self.bin, one, where)
        self.env["PATH"] = f"{self.bin}:{self.env['PATH']}"

    def gate(self, name: str = "gate") -> Gate:
        return Gate(self.folder, name)

    def left(self) -> list[str]:
        """What is in the folder of runs: nothing, when no run is going on."""
        runs = self.state_dir / "runs"
        return sorted(path.name for path in runs.iterdir()) if runs.exists() else []


@pytest.fixture
def new_door(tmp_path: Path) -> Iterator[Callable[..., Door]]:
    doors: list[Door] = []

    def make(name: str, module: str | None = None, **env: str) -> Door:
        folder = tmp_path / f"door{len(doors)}"
        folder.mkdir()
        doors.append(Door(folder, name, module or f"stoker.compat.{name}.main", **env))
        return doors[-1]

    yield make
    for door in doors:
        door.close()
