"""A lab that this process submits to, like a user's script."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab import Lab


@pytest.fixture
def here(new_lab: Callable[..., Lab], monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Two simulated GPUs and CPU slots; retries start immediately."""
    lab = new_lab(devices=2, STOKER_CPU_SLOTS="8", STOKER_RETRY_DELAY="0.01")
    for key in list(os.environ):
        if key.startswith("STOKER_"):
            monkeypatch.delenv(key)
    for key, value in lab.env.items():
        if key.startswith("STOKER_") or key == "SHELL":
            monkeypatch.setenv(key, value)
    return lab


@pytest.fixture
def gate(tmp_path: Path) -> Callable[[str], str]:
    """Creates FIFOs: a reader blocks until another process writes, and vice versa."""

    def make(name: str = "gate") -> str:
        path = str(tmp_path / name)
        os.mkfifo(path)
        return path

    return make
