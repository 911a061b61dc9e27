"""Finds conda environments without running conda, which takes about a second.

The places are those of `conda env list`: the `envs` folder of the installation, CONDA_ENVS_PATH,
`envs_dirs` in .condarc, ~/.conda/envs, and the list ~/.conda/environments.txt.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

_PROGRAMS = ("conda", "mamba", "micromamba")
# Where installers put conda by default, for users who did not put it on their PATH.
_USUAL_ROOTS = (
    "~/miniconda3",
    "~/anaconda3",
    "~/miniforge3",
    "~/mambaforge",
    "~/micromamba",
    "~/.local/share/mamba",
    "/opt/conda",
    "/opt/miniconda3",
    "/opt/miniforge3",
)


def is_conda_environment(prefix: str) -> bool:
    """Whether conda, mamba or micromamba made this folder."""
    return os.path.isdir(os.path.join(prefix, "conda-meta"))


def find_conda(name: str, env: Mapping[str, str]) -> str | None:
    """The prefix of an environment by its name, for a process with this environment, or None."""
    if name in ("base", "root"):
        return next((root for root in _roots(env) if is_conda_environment(root)), None)
    if name in (".", "..") or "/" in name:
        return None
    for folder in _folders(env):
        prefix = os.path.join(folder, name)
        if is_conda_environment(prefix):
            return prefix
    for prefix in _listed(env):
        if os.path.basename(prefix) == name and is_conda_environment(prefix):
            return prefix
    return None


def conda_names(env: Mapping[str, str]) -> list[str]:
    """The names of all environments, sorted."""
    found = {os.path.basename(prefix) for prefix in _listed(env) if is_conda_environment(prefix)}
    for folder in _folders(env):
        found.update(n for n in _entries(folder) if is_conda_environment(os.path.join(folder, n)))
    if any(is_conda_environment(root) for root in _roots(env)):
        found.add("base")
    return sorted(found)


def conda_program(env: Mapping[str, str]) -> str:
    """The program that hints name: the one that the user has, `conda` if there is none."""
    folders = env.get("PATH", "").split(":")
    for program in _PROGRAMS:
        if any(os.access(os.path.join(folder, program), os.X_OK) for folder in folders if folder):
            return program
    return "conda"


def _home(env: Mapping[str, str]) -> str:
    return env.get("HOME") or os.path.expanduser("~")


def _roots(env: Mapping[str, str]) -> Iterator[str]:
    """Folders of installations: the base environments. Some may not exist."""
    for name in ("CONDA_EXE", "MAMBA_EXE"):
        if env.get(name):
            yield os.path.dirname(os.path.dirname(env[name]))
    if env.get("MAMBA_ROOT_PREFIX"):
        yield env["MAMBA_ROOT_PREFIX"]
    for folder in env.get("PATH", "").split(":"):
        for program in _PROGRAMS[:2]:
            path = os.path.join(folder, program)
            if folder and os.access(path, os.X_OK):
                # bin/conda or condabin/conda; the real path if it is a link in /usr/local/bin.
                yield os.path.dirname(os.path.abspath(folder))
                yield os.path.dirname(os.path.dirname(os.path.realpath(path)))
    home = _home(env)
    for root in _USUAL_ROOTS:
        yield root.replace("~", home, 1) if root[0] == "~" else root


def _folders(env: Mapping[str, str]) -> Iterator[str]:
    """Folders that contain environments by name. Some may not exist."""
    for name in ("CONDA_ENVS_PATH", "CONDA_ENVS_DIRS"):
        yield from (folder for folder in env.get(name, "").split(":") if folder)
    home = _home(env)
    roots = list(dict.fromkeys(_roots(env)))
    for place in (home, os.path.join(home, ".conda"), *roots):
        yield from _configured(os.path.join(place, ".condarc"), home)
        yield from _configured(os.path.join(place, ".mambarc"), home)
    for root in roots:
        yield os.path.join(root, "envs")
    yield os.path.join(home, ".conda", "envs")


def _configured(path: str, home: str) -> list[str]:
    """The `envs_dirs` of a .condarc: YAML, of which only this list is read."""
    found: list[str] = []
    is_inside = False
    for line in _lines(path):
        text = line.split(" #")[0].strip()
        if text.startswith("-") and is_inside:
            folder = text[1:].strip().strip("\"'")
            if folder.startswith("~/"):
                folder = os.path.join(home, folder[2:])
            if folder:
                found.append(folder)
        elif text:
            is_inside = text in ("envs_dirs:", "envs_path:")
    return found


def _listed(env: Mapping[str, str]) -> list[str]:
    path = os.path.join(_home(env), ".conda", "environments.txt")
    return [line.strip() for line in _lines(path) if line.strip()]


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().splitlines()
    except OSError:
        return []


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
