"""The files of `stoker pull` as a tar stream from a box, without those that are already here."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterable, Mapping
from typing import IO, Protocol

from stoker.errors import Conflict, TryLater
from stoker.features.remote.sync_receiver import check_path
from stoker.record import Record

END = "end-of-files"  # the last member; without it, the connection was lost


class FileToSend(Protocol):
    """What `features/artifacts/verbs/pull.py` lists."""

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> str | None: ...
    @property
    def content(self) -> bytes: ...
    @property
    def target(self) -> str | None: ...


class Saved(Record):
    """What was written: the number of files in all, and the names of new and changed ones."""

    files: int
    copied: frozenset[str]
    is_complete: bool = True


def send(files: Iterable[FileToSend], have: Mapping[str, list[int]], stream: IO[bytes]) -> None:
    """Write a tar stream; `have`: size and time of the files that the receiver has."""
    count = 0
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for file in files:
            count += 1
            member = tarfile.TarInfo(file.name)
            if file.target is not None:
                member.type, member.linkname = tarfile.SYMTYPE, file.target
                archive.addfile(member)
            elif file.path is None:
                member.size = len(file.content)
                archive.addfile(member, io.BytesIO(file.content))
            else:
                _send_file(archive, member, file.path, have)
        last = tarfile.TarInfo(END)
        last.pax_headers = {"comment": str(count)}
        archive.addfile(last)


def _send_file(
    archive: tarfile.TarFile, member: tarfile.TarInfo, path: str, have: Mapping[str, list[int]]
) -> None:
    try:
        with open(path, "rb") as file:
            info = os.fstat(file.fileno())
            if have.get(member.name) == [info.st_size, int(info.st_mtime)]:
                return
            member.size, member.mtime = info.st_size, int(info.st_mtime)
            member.mode = info.st_mode & 0o777
            archive.addfile(member, _Exactly(file, info.st_size))  # type: ignore[arg-type]
    except FileNotFoundError:
        return


class _Exactly:
    """Reads a fixed number of bytes of a file that may grow or shrink meanwhile."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._left = size

    def read(self, count: int) -> bytes:
        count = min(count, self._left)
        data = self._file.read(count)
        self._left -= count
        return data + bytes(count - len(data))


def save(stream: IO[bytes], folder: str) -> Saved:
    """Write the files of a tar stream into a folder.

    Raises Conflict for a path outside of the folder, and TryLater if a file cannot be written.
    """
    copied: set[str] = set()
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                if member.name == END:
                    return Saved(int(member.pax_headers["comment"]), frozenset(copied))
                _save_member(archive, member, folder)
                copied.add(member.name)
    except (tarfile.TarError, EOFError):
        pass  # cut off
    return Saved(0, frozenset(copied), is_complete=False)


def _save_member(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: str) -> None:
    check_path(member.name)
    if not (member.isreg() or member.issym()):
        raise Conflict(f"`{member.name}` is not a file")
    path = os.path.join(folder, member.name)
    parent, real = os.path.dirname(path), os.path.realpath(folder)
    if os.path.realpath(parent) != os.path.normpath(f"{real}/{os.path.dirname(member.name)}"):
        raise Conflict(f"`{parent}` is a link, so no file is written there", "remove it first")
    try:
        if member.issym():
            if not is_safe_link(member.name, member.linkname):
                raise Conflict(f"`{member.name}` is a link that leads out of its folder")
            save_link(path, member.linkname)
            return
        source = archive.extractfile(member)
        assert source is not None
        save_file(path, source, member.mode & 0o777, member.mtime)
    except OSError as error:
        raise TryLater(f"cannot write `{path}`: {error.strerror}") from None


def is_safe_link(name: str, target: str) -> bool:
    """Whether a symlink stays inside the output folder of its job, even through other links.

    >>> is_safe_link("7/output/a/b", "../c"), is_safe_link("7/output/a", "../c")
    (True, False)
    >>> is_safe_link("7/output/a", "/c"), is_safe_link("7/output/a", "b/../c")
    (False, False)
    """
    if os.path.isabs(target) or os.path.normpath(target) != target:
        return False
    end = os.path.normpath(os.path.join(os.path.dirname(name), target))
    return end.split("/")[:2] == name.split("/")[:2] and end.count("/") >= 2


def save_link(path: str, target: str) -> None:
    """Create a symlink in place of an earlier one."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f"{path}.{os.getpid()}.part"
    os.symlink(target, temporary)
    os.replace(temporary, path)


def save_file(path: str, source: IO[bytes], mode: int, mtime: float) -> None:
    """Write a file; under its name it is always complete."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f"{path}.{os.getpid()}.part"
    try:
        with open(temporary, "wb") as file:
            while block := source.read(1 << 20):
                file.write(block)
        os.chmod(temporary, mode | 0o600)
        os.utime(temporary, (mtime, mtime))
        os.replace(temporary, path)
    finally:
        if os.path.lexists(temporary):
            os.unlink(temporary)


def present(folder: str) -> dict[str, list[int]]:
    """Size and time of the files of jobs that a folder has."""
    found = {}
    for place, folders, names in os.walk(folder):
        if place == folder:
            folders[:] = [name for name in folders if name.isdigit()]
            continue
        for name in names:
            path = os.path.join(place, name)
            if not os.path.islink(path):
                info = os.stat(path)
                found[os.path.relpath(path, folder)] = [info.st_size, int(info.st_mtime)]
    return found
