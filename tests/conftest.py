"""The lab and cluster fixtures; labs and clusters are closed after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from tests.lab import Lab
from tests.worker_groups import group_of, start_order

if TYPE_CHECKING:
    from tests.engines.fake_slurm import FakeSlurm
    from tests.engines.ray_cluster import RayCluster
    from tests.engines.slurm_cluster import SlurmCluster

# A slow run on a busy machine is not a failure.
hypothesis.settings.register_profile(
    "stoker",
    deadline=None,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("stoker")


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


@pytest.fixture
def fake_slurm(tmp_path: Path) -> Iterator[FakeSlurm]:
    """Fake programs of Slurm, whose answers the test declares."""
    from tests.engines.fake_slurm import FakeSlurm

    fake = FakeSlurm(tmp_path / "fake-slurm")
    yield fake
    fake.close()


@pytest.fixture
def new_ray() -> Iterator[Callable[..., RayCluster]]:
    """A function that starts Ray clusters; its arguments are those of `RayCluster`.

    A start takes many seconds: only for tests that change the cluster as a whole.
    """
    from tests.engines.ray_cluster import RayCluster

    _need_ray()
    clusters: list[RayCluster] = []

    def make(**options: Any) -> RayCluster:
        clusters.append(RayCluster(**options))
        clusters[-1].start()
        return clusters[-1]

    yield make
    for cluster in clusters:
        cluster.stop()


@pytest.fixture(scope="session")
def _shared_ray() -> Iterator[RayCluster]:
    """A Ray cluster with nodes 0, 1 and 2 of 8 CPUs and 4 fake GPUs each; 0 is the head."""
    from tests.engines.ray_cluster import RayCluster

    _need_ray()
    with RayCluster() as cluster:
        yield cluster


@pytest.fixture
def ray(_shared_ray: RayCluster) -> Iterator[RayCluster]:
    """The shared Ray cluster. Nodes that a test adds, and actors that it starts, end with it."""
    yield _shared_ray
    _shared_ray.clean()


def _need_ray() -> None:
    from tests.engines.ray_cluster import has_ray

    if not has_ray():
        pytest.skip("needs Ray and root")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: start_order(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    config.option.loadscopereorder = False
    return GroupScheduling(config, log)
