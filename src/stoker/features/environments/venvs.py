"""Virtual environments of Python: `python -m venv`, `virtualenv`, `uv venv`."""

from __future__ import annotations

import os


def venv_problem(path: str) -> str | None:
    """Why a folder is not a virtual environment; None if it is one."""
    if not os.path.isdir(path):
        return f"there is no virtual environment `{path}`"
    if not os.path.exists(os.path.join(path, "pyvenv.cfg")):
        return f"`{path}` is not a virtual environment: it has no pyvenv.cfg"
    if not os.access(os.path.join(path, "bin", "python"), os.X_OK):
        return f"the virtual environment `{path}` has no bin/python that can be executed"
    return None


def uv_project(cwd: str) -> str | None:
    """The folder with the pyproject.toml that uv uses for commands in `cwd`, or None."""
    folder = os.path.abspath(cwd)
    while True:
        if os.path.isfile(os.path.join(folder, "pyproject.toml")):
            return folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent
