"""A host with a fake NVIDIA driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fake_nvml import FakeNvml, build


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.getbasetemp())


@pytest.fixture
def fake(tmp_path: Path, nvml_library: Path) -> FakeNvml:
    return FakeNvml(tmp_path / "nvml", nvml_library, count_calls=True)
