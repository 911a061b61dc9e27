"""Fixtures for compatible commands: real commands on the PATH, no configuration, no real GPU.

lab = new_compat_lab("simple_gpu_scheduler")
done = lab.run("--gpus", "0", input="echo hello\\n")
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.compat.gpupeasy_lab import PeasyLab
from tests.engine.gpus.conftest import host, new_host, nvml_library
from tests.helpers import Gate
from tests.lab import Lab

__all__ = ["host", "new_host", "nvml_library"]  # fixtures

# The modules behind the console scripts of the same names.
_MODULES = {
    "simple_gpu_scheduler": "stoker.compat.simple_gpu_scheduler.main",
    "simple_hypersearch": "stoker.compat.simple_gpu_scheduler.hypersearch",
}


def install(folder: Path, name: str, module: str) -> None:
    """Create a console script that runs `module`."""
    folder.mkdir(exist_ok=True)
    script = folder / name
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
    script.chmod(0o755)


class CompatLab(Lab):
    """A lab for one compatible command, which `run`, `ok` and `popen` call."""

    def __init__(self, folder: Path, name: str, module: str, **env: str) -> None:
        super().__init__(folder, None, **env)
        self.command = [sys.executable, "-m", module]
        self.bin = folder / "bin"
        for script, target in {**_MODULES, name: module}.items():
            install(self.bin, script, target)
        self.env["PATH"] = f"{self.bin}:{self.env['PATH']}"

    def gate(self, name: str = "gate") -> Gate:
        return Gate(self.folder, name)

    def leftovers(self) -> list[str]:
        """The entries of the folder of runs, which is empty while nothing runs."""
        runs = self.state_dir / "runs"
        return sorted(path.name for path in runs.iterdir()) if runs.exists() else []


@pytest.fixture
def new_compat_lab(tmp_path: Path) -> Iterator[Callable[..., CompatLab]]:
    labs: list[CompatLab] = []

    def make(name: str, module: str | None = None, **env: str) -> CompatLab:
        folder = tmp_path / f"lab{len(labs)}"
        folder.mkdir()
        labs.append(CompatLab(folder, name, module or f"stoker.compat.{name}.main", **env))
        return labs[-1]

    yield make
    for lab in labs:
        lab.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeasyLab]:
    """GPUPeasy's two servers for all tests of a module that do not change them."""
    lab = PeasyLab(tmp_path_factory.mktemp("shared"))
    lab.serve()
    lab.show()
    yield lab
    lab.close()
