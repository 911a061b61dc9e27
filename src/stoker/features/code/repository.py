"""Find the git work tree of a folder, and read its commit and branch.

Every submit does this, so it reads the few files itself: git would take longer to start.
"""

from __future__ import annotations

import os

from stoker.record import Record

_MAX_FILE = 64 << 20  # packed-refs of a repository with very many branches and tags
_REF = b"ref: "
_HEX = frozenset(b"0123456789abcdef")
_HASH_LENGTHS = (40, 64)  # SHA-1, SHA-256


class Repository(Record):
    """A git work tree. Paths are as the file system has them, with surrogate escapes."""

    root: str
    git_dir: str  # of this work tree: HEAD, index
    common_dir: str  # shared with other work trees: objects, branches


class Head(Record):
    """The commit and branch of a work tree."""

    commit: str | None  # None: there is no commit yet
    branch: str | None  # None: HEAD is detached
    problem: str | None = None  # why the commit is not known


def find_repository(folder: str) -> Repository | None:
    """The work tree that contains a folder; None if no git repository contains it."""
    here = os.path.abspath(folder)
    while True:
        place = os.path.join(here, ".git")
        try:
            found = _git_dir(place)
        except OSError:
            found = None  # there is none here, or it cannot be read
        if found is not None:
            return Repository(here, found, _common_dir(found))
        parent = os.path.dirname(here)
        if parent == here:
            return None
        here = parent


def read_head(repository: Repository) -> Head:
    """The commit and branch of a work tree. Never raises for damaged files: `problem` says so."""
    try:
        text = _read(os.path.join(repository.git_dir, "HEAD")).strip()
    except OSError as error:
        return Head(None, None, f"cannot read HEAD: {error.strerror}")
    if not text.startswith(_REF):
        commit = _hash(text)
        problem = None if commit else "HEAD has neither a commit nor a branch"
        return Head(commit, None, problem)
    ref = text[len(_REF) :].strip()
    branch = os.fsdecode(ref.removeprefix(b"refs/heads/"))
    if ref == b"refs/heads/.invalid":
        return Head(None, None, "the branches of the repository are stored as reftable")
    try:
        return Head(_resolve(repository, ref), branch)
    except (OSError, ValueError) as error:
        return Head(None, branch, f"cannot read its branch: {error}")


def _git_dir(place: str) -> str | None:
    """The git directory at `place`: a folder, or the one that a file of a work tree names."""
    if os.path.isfile(place):
        text = _read(place, 65536)
        if not text.startswith(b"gitdir: "):
            return None
        named = os.fsdecode(text[len(b"gitdir: ") :].rstrip(b"\r\n"))
        place = os.path.normpath(os.path.join(os.path.dirname(place), named))
    os.stat(os.path.join(place, "HEAD"))
    return place


def _common_dir(git_dir: str) -> str:
    try:
        text = _read(os.path.join(git_dir, "commondir"), 65536)
    except OSError:
        return git_dir
    return os.path.normpath(os.path.join(git_dir, os.fsdecode(text.rstrip(b"\r\n"))))


def _resolve(repository: Repository, ref: bytes) -> str | None:
    """The commit of a branch; None if it has none yet. Raises OSError or ValueError."""
    if b".." in ref or ref.startswith(b"/"):
        raise ValueError("its name is not valid")
    for folder in dict.fromkeys((repository.git_dir, repository.common_dir)):
        try:
            text = _read(os.path.join(folder, os.fsdecode(ref)), 4096).strip()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            continue
        commit = _hash(text)
        if commit is None:
            raise ValueError("the file of the branch is damaged")
        return commit
    try:
        packed = _read(os.path.join(repository.common_dir, "packed-refs"))
    except FileNotFoundError:
        return None
    end = (b"\n" + packed).find(b" " + ref + b"\n")
    if end < 0:
        return None
    start = packed.rfind(b"\n", 0, end) + 1
    return _hash(packed[start : end - 1])


def _hash(text: bytes) -> str | None:
    return text.decode() if len(text) in _HASH_LENGTHS and _HEX.issuperset(text) else None


def _read(path: str, limit: int = _MAX_FILE) -> bytes:
    """The content of a regular file. Raises OSError, also for a FIFO, which would block."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        parts = []
        while limit > 0 and (part := os.read(descriptor, min(limit, 1 << 20))):
            parts.append(part)
            limit -= len(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)
