"""Run git without the configuration of the repository that it reads.

Settings of a repository can execute programs: core.fsmonitor, diff.external, filters, hooks. Git is
therefore run with a git directory of Stoker's own, which is part of this package. The objects, the
index and the work tree of the repository are given to it by environment variables, so it never
reads the repository's configuration, and a repository of another user needs no `safe.directory`.
"""

from __future__ import annotations

import os

from stoker.errors import Unavailable
from stoker.features.code.repository import Repository

_SECONDS = 60
_HERE = os.path.dirname(__file__)


def find_git() -> str | None:
    """The path of git; None if it is not installed. Relative folders in PATH are ignored."""
    for folder in os.environ.get("PATH", os.defpath).split(":"):
        path = os.path.join(folder, "git")
        if folder.startswith("/") and os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


def git_environment(repository: Repository, is_sha256: bool = False) -> dict[str, str]:
    """The environment in which git reads a repository."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    env |= {
        "GIT_DIR": os.path.join(_HERE, "git_dir_sha256" if is_sha256 else "git_dir"),
        "GIT_OBJECT_DIRECTORY": os.path.join(repository.common_dir, "objects"),
        "GIT_INDEX_FILE": os.path.join(repository.git_dir, "index"),
        "GIT_WORK_TREE": repository.root,
        "GIT_OPTIONAL_LOCKS": "0",  # do not write the index
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }
    return env


def run_git(repository: Repository, words: list[str], *, is_sha256: bool = False) -> bytes:
    """The output of a git command in a work tree. Raises Unavailable if it cannot run or fails."""
    import subprocess

    git = find_git()
    if git is None:
        raise Unavailable("git is not installed", "install git, or submit without a snapshot")
    try:
        done = subprocess.run(
            [git, "--no-pager", "-C", repository.root, *words],
            env=git_environment(repository, is_sha256),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(
            f"git did not list the files of `{repository.root}` within {_SECONDS} s"
        ) from None
    if done.returncode:
        text = " ".join(done.stderr.decode("utf-8", "replace").split())[:300]
        raise Unavailable(f"git cannot read `{repository.root}`: {text}")
    return done.stdout


def excluded_by_user() -> str | None:
    """The ignore file that the user's own git settings name; None if there is none."""
    import subprocess

    git = find_git()
    if git is None:
        return None
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    done = subprocess.run(
        [git, "config", "--global", "--path", "--get", "core.excludesFile"],
        env=env,
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_SECONDS,
    )
    path = os.fsdecode(done.stdout.removesuffix(b"\n"))
    return path if path and os.path.isfile(path) else None
