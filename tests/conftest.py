"""The lab fixtures; labs are closed after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab import Lab


@pytest.fixture
def new_lab(tmp_path: Path) -> Iterator[Callable[..., Lab]]:
    """A function that creates labs, each with its own folder."""
    labs: list[Lab] = []

    def make(devices: int | str | None = None, **env: str) -> Lab:
        folder = tmp_path / f"lab{len(labs)}"
        folder.mkdir()
        labs.append(Lab(folder, devices, **env))
        return labs[-1]

    yield make
    for lab in labs:
        lab.close()


@pytest.fixture
def lab(new_lab: Callable[..., Lab]) -> Lab:
    """A lab with two simulated GPUs."""
    return new_lab(devices=2)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest tests first, so that no worker is left with them at the end."""
    items.sort(key=lambda item: "tests/simulation/test_seeds.py" not in item.nodeid)
