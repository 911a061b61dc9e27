"""The files of a work tree: which ones are code, and which ones stay at their place.

Code: tracked files as they are now, and untracked files that are not ignored and not larger than
MAX_UNTRACKED_BYTES. Everything else (ignored files and folders, larger untracked files, untracked
folders without files, repositories inside the work tree) stays where it is, and a snapshot has
links to it. Byte code of Python is neither: a snapshot makes its own.
"""

from __future__ import annotations

import os
import stat

from stoker.errors import UsageError
from stoker.features.code.private_git import excluded_by_user, run_git
from stoker.features.code.repository import Repository, find_repository, read_head
from stoker.record import Record

MAX_UNTRACKED_BYTES = 10_000_000
MAX_FILES = 100_000
_SUBMODULE = "160000"
_BYTE_CODE = "__pycache__"
_SHA256_LENGTH = 64


class TreeFile(Record):
    """A file or a symbolic link of the code."""

    path: str  # relative to the work tree
    size: int
    is_executable: bool
    target: str | None = None  # of a symbolic link


class WorkTree(Record):
    """The content of a work tree. Paths are relative to it, and sorted."""

    files: tuple[TreeFile, ...]
    links: tuple[str, ...]  # files and folders that stay at their place

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def list_work_tree(repository: Repository) -> WorkTree:
    """List the files of a work tree and of its submodules.

    Raises Unavailable if git fails, and UsageError if there are too many files.
    """
    excludes = _excludes(repository)
    files: dict[str, TreeFile] = {}
    links: set[str] = set()
    _list(repository, "", excludes, files, links)
    for path in list(links):
        if any(parent in links for parent in _parents(path)):
            links.discard(path)
    return WorkTree(
        tuple(files[path] for path in sorted(files)), tuple(sorted(links - files.keys()))
    )


def _list(
    repository: Repository,
    prefix: str,
    excludes: list[str],
    files: dict[str, TreeFile],
    links: set[str],
) -> None:
    commit = read_head(repository).commit
    is_sha256 = commit is not None and len(commit) == _SHA256_LENGTH

    def listed(*words: str) -> list[str]:
        output = run_git(repository, ["ls-files", "-z", *words], is_sha256=is_sha256)
        return [os.fsdecode(name) for name in output.split(b"\0") if name]

    for entry in listed("--stage"):
        facts, _, name = entry.partition("\t")
        if facts.startswith(_SUBMODULE):
            _list_submodule(repository, prefix, name, excludes, files, links)
        else:
            _add(repository.root, prefix, name, files, links, None)
    for name in listed("--others", *excludes):
        if not name.endswith("/"):
            _add(repository.root, prefix, name, files, links, MAX_UNTRACKED_BYTES)
    folders = {parent for path in files for parent in _parents(path)}
    for name in listed("--others", "--directory", *excludes):
        if name.endswith("/") and prefix + name[:-1] not in folders:  # it has no file of the code
            links.add(prefix + name[:-1])
    for name in listed("--others", "--ignored", "--directory", *excludes):
        path = prefix + name.rstrip("/")
        if _BYTE_CODE not in path.split("/") and not name.endswith(".pyc"):
            links.add(path)
    # An ignored folder may hold tracked files; then its other files are linked one by one.
    links.difference_update(folders)


def _list_submodule(
    repository: Repository,
    prefix: str,
    name: str,
    excludes: list[str],
    files: dict[str, TreeFile],
    links: set[str],
) -> None:
    place = os.path.join(repository.root, name)
    inner = find_repository(place)
    if inner is None or inner.root != place:
        return  # the submodule was not fetched
    own = [*excludes[:1], *_exclude_file(inner), *excludes[1 + len(_exclude_file(repository)) :]]
    _list(inner, f"{prefix}{name}/", own, files, links)


def _excludes(repository: Repository) -> list[str]:
    """The options that make git ignore what it ignores in this repository."""
    by_user = excluded_by_user()
    return [
        "--exclude-standard",
        *_exclude_file(repository),
        *([] if by_user is None else [f"--exclude-from={by_user}"]),
    ]


def _exclude_file(repository: Repository) -> list[str]:
    path = os.path.join(repository.common_dir, "info", "exclude")
    return [f"--exclude-from={path}"] if os.path.isfile(path) else []


def _add(
    root: str,
    prefix: str,
    name: str,
    files: dict[str, TreeFile],
    links: set[str],
    limit: int | None,
) -> None:
    path = prefix + name
    try:
        info = os.lstat(os.path.join(root, name))
    except (FileNotFoundError, NotADirectoryError):
        return  # deleted, or outside of a sparse checkout
    if stat.S_ISLNK(info.st_mode):
        target = _target(root, prefix, name)
        files[path] = TreeFile(path, 0, False, target)
    elif stat.S_ISREG(info.st_mode):
        if limit is not None and info.st_size > limit:
            links.add(path)
        else:
            files[path] = TreeFile(path, info.st_size, bool(info.st_mode & 0o100))
    if len(files) > MAX_FILES:
        raise UsageError(
            f"the work tree `{root}` has more than {MAX_FILES} files that are not ignored",
            "ignore folders of data with .gitignore: a snapshot has links to ignored folders",
            "snapshot",
        )


def _target(root: str, prefix: str, name: str) -> str:
    """The target of a link; a relative one that leaves the work tree becomes absolute."""
    target = os.readlink(os.path.join(root, name))
    if os.path.isabs(target):
        return target
    inside = os.path.normpath(os.path.join(os.path.dirname(prefix + name), target))
    if inside == ".." or inside.startswith("../"):
        return os.path.normpath(os.path.join(root, os.path.dirname(name), target))
    return target


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]
