"""A box for each test; one sshd serves all tests of a worker."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.features.remote.ssh_box import SSHD, SshBox, Sshd


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    if shutil.which("ssh") is None or not os.path.exists(SSHD):
        pytest.skip("needs ssh and sshd")
    server = Sshd(tmp_path_factory.mktemp("sshd"))
    yield server
    server.stop()


@pytest.fixture
def box(sshd: Sshd, tmp_path: Path) -> Iterator[SshBox]:
    """A machine with two simulated GPUs behind ssh."""
    box = SshBox(sshd, tmp_path)
    yield box
    box.close()
