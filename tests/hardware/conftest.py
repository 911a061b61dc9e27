"""Tests on a real card. Without one, or without torch, they are skipped: `make gpu-test`."""

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


def has_card() -> bool:
    return os.path.exists("/proc/driver/nvidia/version")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if has_card() and importlib.util.find_spec("torch") is not None:
        return
    for item in items:
        if "hardware" in str(item.path):
            item.add_marker(pytest.mark.skip(reason="this machine has no GPU with torch"))


class CardLab(Lab):
    """A lab whose jobs are torch programs on the host's own card."""

    def __init__(self, folder: Path, **env: str) -> None:
        super().__init__(folder, **env)
        self.env.pop("PYTHONDONTWRITEBYTECODE", None)  # an import of torch is slow enough
        self._reports: dict[int, Path] = {}

    def train(self, *flags: str, **options: float | str) -> int:
        """Submit a training with stoker's flags and the program's options."""
        # Named by a number alone: these commands are one family.
        report = self.folder / "reports" / str(len(self._reports))
        report.parent.mkdir(exist_ok=True)
        words = [f"--{key}={value}" for key, value in options.items()]
        job = self.submit(*flags, "--", sys.executable, str(TRAIN), f"--report={report}", *words)
        self._reports[job] = report
        return job

    def report(self, job: int) -> dict[str, Any]:
        return dict(json.loads(self._reports[job].read_text()))

    def is_up(self, job: int) -> bool:
        return Path(f"{self._reports[job]}.up").exists()

    def stranger(self, gib: float) -> subprocess.Popen[bytes]:
        """Somebody who does not use Stoker takes memory."""
        report = self.folder / "stranger"
        process = subprocess.Popen(
            [sys.executable, str(TRAIN), f"--gib={gib}", f"--until={self.folder}/never",
             f"--report={report}"], env=self.env
        )  # fmt: skip
        self.wait_until(lambda: Path(f"{report}.up").exists(), timeout=120)
        return process


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[CardLab]:
    made = CardLab(tmp_path, STOKER_NVML="1")
    yield made
    made.close()
