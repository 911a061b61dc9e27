from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine.gpus.host import H200, GpuHost
from tests.fake_nvml import build
from tests.lab import Lab
from tests.web.site import Site


@pytest.fixture
def site(lab: Lab) -> Site:
    """A web server for two simulated GPUs, on a free port."""
    return Site(lab, "--port", free_port())


@pytest.fixture
def new_site(new_lab: Callable[..., Lab]) -> Callable[..., Site]:
    return lambda *options, **env: Site(new_lab(2, **env), "--port", free_port(), *options)


@pytest.fixture(scope="module")
def shared_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One web server for many tests that do not affect each other."""
    folder: Path = tmp_path_factory.mktemp("shared")
    lab = Lab(folder, 2)
    yield Site(lab, "--port", free_port())
    lab.close()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[GpuHost]:
    """A host with two GPUs of a fake driver."""
    host = GpuHost(tmp_path, build(tmp_path), H200, H200)
    yield host
    host.close()


def free_port() -> str:
    """A free port; the default one may be in use by other tests on this host."""
    import socket

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return str(sock.getsockname()[1])
