"""Clusters and labs of the tests of backends; one Slurm cluster for all tests of a process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engines.slurm_cluster import SlurmCluster, has_slurm
from tests.features.backends.slurm_lab import SlurmLab, end_allocations


@pytest.fixture(scope="session")
def _shared_slurm() -> Iterator[SlurmCluster]:
    if not has_slurm():
        pytest.skip("needs Slurm and root")
    # Nodes of other tests may be lost for a while; credentials live long on a loaded machine.
    with SlurmCluster(requeue_delay=120) as cluster:
        yield cluster


@pytest.fixture
def shared_slurm(_shared_slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    """A cluster that tests share one after the other; they leave all nodes idle."""
    yield _shared_slurm
    end_allocations(_shared_slurm)


@pytest.fixture
def new_slurm_lab(tmp_path: Path) -> Iterator[Callable[..., SlurmLab]]:
    """A function that creates labs with a Slurm backend on the given cluster."""
    labs: list[SlurmLab] = []

    def make(cluster: SlurmCluster, *options: str, **env: Any) -> SlurmLab:
        folder = tmp_path / f"slurm{len(labs)}"
        folder.mkdir()
        labs.append(SlurmLab(folder, cluster, *options, **env))
        return labs[-1]

    yield make
    for lab in labs:
        lab.close()


@pytest.fixture
def slurm_lab(shared_slurm: SlurmCluster, new_slurm_lab: Callable[..., SlurmLab]) -> SlurmLab:
    """A lab with the shared Slurm cluster as its backend `lab`."""
    return new_slurm_lab(shared_slurm)
