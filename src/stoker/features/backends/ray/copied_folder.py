"""The folder of a job as it is sent to nodes: its files, and a digest of them."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from collections.abc import Iterator

from stoker.record import Record
from stoker.text.sizes import format_size

_BLOCK = 1 << 20


class TooLarge(Exception):
    """The folder has more bytes than are sent. The text is shown to users."""


class FolderFile(Record):
    """A regular file or a symbolic link."""

    name: str  # relative to the folder
    mode: int
    size: int
    mtime_ns: int
    target: str | None = None  # of a link


class CopiedFolder(Record):
    files: tuple[FolderFile, ...]
    digest: str


class FolderReader:
    """Reads folders; one whose files have not changed since is not read again."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._known: dict[str, CopiedFolder] = {}

    def read(self, folder: str) -> CopiedFolder:
        """Raises TooLarge, or OSError if the folder cannot be read."""
        files = tuple(self._files(folder))
        known = self._known.get(folder)
        if known is None or known.files != files:
            known = self._known[folder] = CopiedFolder(files=files, digest=_digest(folder, files))
        return known

    def _files(self, folder: str) -> Iterator[FolderFile]:
        total = 0
        for name in _names(folder):
            try:
                info = os.lstat(os.path.join(folder, name))
            except FileNotFoundError:
                continue  # deleted, but not yet in git
            is_link = stat.S_ISLNK(info.st_mode)
            if not is_link and not stat.S_ISREG(info.st_mode):
                continue
            total += info.st_size
            if total > self._max_bytes:
                raise TooLarge(
                    f"the folder `{folder}` has more than {format_size(self._max_bytes)}, the most "
                    "that is sent to a node: ignore large files with .gitignore, submit from "
                    "another folder, or raise the option max-size of the backend"
                )
            yield FolderFile(
                name=name,
                mode=stat.S_IMODE(info.st_mode),
                size=info.st_size,
                mtime_ns=info.st_mtime_ns,
                target=os.readlink(os.path.join(folder, name)) if is_link else None,
            )


def _names(folder: str) -> list[str]:
    """The files that git tracks or would track; all files if the folder is not in a repository."""
    words = ["git", "-C", folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    except OSError:
        return sorted(_all_names(folder))
    if done.returncode:
        return sorted(_all_names(folder))
    return sorted({os.fsdecode(name) for name in done.stdout.split(b"\0") if name})


def _all_names(folder: str) -> Iterator[str]:
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        for name in (*files, *links):
            yield os.path.relpath(os.path.join(place, name), folder)


def _digest(folder: str, files: tuple[FolderFile, ...]) -> str:
    whole = hashlib.sha256()
    for file in files:
        if file.target is None:
            one = hashlib.sha256()
            with open(os.path.join(folder, file.name), "rb") as opened:
                while block := opened.read(_BLOCK):
                    one.update(block)
            content = one.hexdigest()
        else:
            content = f"-> {file.target}"
        line = f"{file.name}\0{file.mode & 0o111}\0{content}\0"
        whole.update(line.encode("utf-8", "surrogateescape"))
    return whole.hexdigest()[:32]
