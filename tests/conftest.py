"""The lab and cluster fixtures; labs and clusters are closed after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.lab import Lab

if TYPE_CHECKING:
    from tests.engines.slurm_cluster import SlurmCluster


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


@pytest.fixture
def new_slurm() -> Iterator[Callable[..., SlurmCluster]]:
    """A function that starts Slurm clusters; its arguments are those of `SlurmCluster`."""
    from tests.engines.slurm_cluster import SlurmCluster, has_slurm

    if not has_slurm():
        pytest.skip("needs Slurm and root")
    clusters: list[SlurmCluster] = []

    def make(**options: Any) -> SlurmCluster:
        clusters.append(SlurmCluster(**options))
        clusters[-1].start()
        return clusters[-1]

    yield make
    for cluster in clusters:
        cluster.stop()


@pytest.fixture
def slurm(new_slurm: Callable[..., SlurmCluster]) -> SlurmCluster:
    """A Slurm cluster with nodes n1, n2 and n3 of 8 CPUs and 4 fake GPUs each."""
    return new_slurm()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest tests first, so that no worker is left with them at the end."""
    items.sort(key=lambda item: "tests/simulation/test_seeds.py" not in item.nodeid)
