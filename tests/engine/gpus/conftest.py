"""Hosts with fake GPUs, closed after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine.gpus.host import H200, GpuHost, GpuLab
from tests.fake_nvml import build


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.getbasetemp())


@pytest.fixture
def new_host(tmp_path: Path, nvml_library: Path) -> Iterator[Callable[..., GpuHost]]:
    hosts: list[GpuHost] = []

    def make(*models: str, **options: int) -> GpuHost:
        folder = tmp_path / f"host{len(hosts)}"
        folder.mkdir()
        hosts.append(GpuHost(folder, nvml_library, *models, **options))
        return hosts[-1]

    yield make
    for host in hosts:
        host.close()


@pytest.fixture
def host(new_host: Callable[..., GpuHost]) -> GpuHost:
    """A host with two H200 of 80 GiB."""
    return new_host(H200, H200)


@pytest.fixture
def gpu_lab(host: GpuHost) -> GpuLab:
    return host.lab()
