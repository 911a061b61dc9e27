"""Tests on a real GPU (`make gpu-test`), skipped without one or without torch."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab import Lab

TRAIN = Path(__file__).with_name("train.py")
GIB = 1 << 30


def has_gpu() -> bool:
    return os.path.exists("/proc/driver/nvidia/version")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if has_gpu() and importlib.util.find_spec("torch") is not None:
        return
    for item in items:
        if "hardware" in str(item.path):
            item.add_marker(pytest.mark.skip(reason="this machine has no GPU with torch"))


class HardwareLab(Lab):
    """A lab whose jobs are torch programs on the host's GPU."""

    def __init__(self, folder: Path, **env: str) -> None:
        super().__init__(folder, **env)
        self.env.pop("PYTHONDONTWRITEBYTECODE", None)  # otherwise importing torch is even slower
        self._reports: dict[int, Path] = {}

    def train(self, *flags: str, **options: float | str) -> int:
        """Submit train.py with options of `stoker submit` and of the program."""
        # The names differ only in a number, so that all commands share a profile.
        report = self.folder / "reports" / str(len(self._reports))
        report.parent.mkdir(exist_ok=True)
        args = [f"--{key}={value}" for key, value in options.items()]
        job = self.submit(*flags, "--", sys.executable, str(TRAIN), f"--report={report}", *args)
        self._reports[job] = report
        return job

    def report(self, job: int) -> dict[str, Any]:
        return dict(json.loads(self._reports[job].read_text()))

    def is_up(self, job: int) -> bool:
        return Path(f"{self._reports[job]}.up").exists()

    def other_process(self, gib: float) -> subprocess.Popen[bytes]:
        """Start a process outside of Stoker that takes GPU memory."""
        report = self.folder / "other"
        process = subprocess.Popen(
            [sys.executable, str(TRAIN), f"--gib={gib}", f"--until={self.folder}/never",
             f"--report={report}"], env=self.env
        )  # fmt: skip
        self.wait_until(lambda: Path(f"{report}.up").exists())
        return process


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[HardwareLab]:
    made = HardwareLab(tmp_path, STOKER_NVML="1")
    yield made
    made.close()
