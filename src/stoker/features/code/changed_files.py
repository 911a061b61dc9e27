"""Which tracked files have other content than when a job was submitted."""

from __future__ import annotations

import os

from stoker.features.code.git_patch import changed_paths
from stoker.features.code.repository import find_repository
from stoker.features.code.state_reader import EMPTY_TREE, compare


def changed_since(
    root: str, commit: str | None, diff: bytes, seconds: float = 2.0
) -> list[str] | str:
    """The files of a work tree that changed since `diff` was its difference from `commit`.

    A text says why that is not known. Both are compared with the same commit, so committing the
    changes, or switching branches and back, is not a change.
    """
    repository = find_repository(root)
    if repository is None or repository.root != root:
        return f"`{root}` is no longer a git repository"
    state = compare(repository, base=commit or EMPTY_TREE, seconds=seconds)
    if state.problem is not None:
        return state.problem
    return [os.fsdecode(path) for path in changed_paths(diff, state.diff)]


def named_files(paths: list[str]) -> str:
    """`train.py and 2 more files`."""
    from stoker.text.terminal import printable

    more = len(paths) - 1
    name = printable(paths[0])
    return name if not more else f"{name} and {more} more file{'s' if more > 1 else ''}"
