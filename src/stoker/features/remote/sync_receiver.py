"""The box's side of `submit --sync`: decide which files must be sent, and receive them.

A manifest next to the folder records what was sent: per path, the file on the sending machine and
the copy on the box, each as `[size, mtime]` or `[link target]`. So the box can tell the copies from
files that jobs made or changed. A sync removes only unchanged copies, and renames a changed file
(`NAME.before-sync`) before it replaces it.
"""

from __future__ import annotations

import json
import os
import stat
import tarfile
from collections.abc import Mapping
from typing import IO, Any

from stoker.errors import Conflict

Mark = list[int | str]  # [size, mtime in ns], or [target] of a symlink
OTHER: Mark = [-1, 0]
_KEPT = ".before-sync"
_MANIFESTS = ".sync"
_CLOCK_NS = 2 * 10**9  # file systems round times, some to two seconds


def plan(folder: str, files: Mapping[str, Mark]) -> dict[str, Any]:
    """Prepare the folder for these files. Returns the paths to send, and what was renamed.

    Removes unchanged copies that are no longer among the files. Raises Conflict.
    """
    manifest = _Manifest(folder)
    os.makedirs(folder, exist_ok=True)
    known = manifest.files
    for path in [path for path in known if path not in files]:
        if (
            _is_inside(folder, path)
            and file_mark(os.path.join(folder, path)) == known[path]["copy"]
        ):
            _remove(folder, path)
        del known[path]
    send, renamed, outside = [], [], []
    for path, mark in files.items():
        check_path(path)
        if not _is_inside(folder, path):
            outside.append(path)
            continue
        renamed += _clear_parents(folder, path)
        there = file_mark(os.path.join(folder, path))
        entry = known.get(path)
        is_ours = entry is not None and there in (entry["copy"], entry["before"])
        if there is not None and _is_same(there, mark) and (entry is None or not entry["copy"]):
            known[path] = {"original": mark, "copy": there, "before": None}
        elif entry is not None and entry["original"] == mark and entry["copy"] and there:
            continue  # nothing to send; a change that a job made stays
        else:
            if there is not None and not is_ours:
                renamed.append(_rename(folder, path))
                there = None
            known[path] = {"original": mark, "copy": None, "before": there}
            send.append(path)
    manifest.save()
    return {"folder": folder, "send": send, "renamed": renamed, "outside": outside}


def receive(folder: str, stream: IO[bytes]) -> None:
    """Extract a tar archive with files to send; a file appears under its name when complete."""
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            check_path(member.name)
            if not _is_inside(folder, member.name):
                raise Conflict(f"`{member.name}` is outside of `{folder}`")
            path = os.path.join(folder, member.name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            temporary = f"{path}.{os.getpid()}.sync"
            if member.issym():
                os.symlink(member.linkname, temporary)
            else:
                source = archive.extractfile(member)
                assert source is not None
                with open(temporary, "wb") as file:
                    while block := source.read(1 << 20):
                        file.write(block)
                os.chmod(temporary, member.mode & 0o777)
                seconds = float(member.pax_headers.get("mtime", member.mtime))
                os.utime(temporary, (seconds, seconds))
            os.replace(temporary, path)


def finish(folder: str) -> None:
    """Record the copies of the files that were sent."""
    manifest = _Manifest(folder)
    for path, entry in manifest.files.items():
        there = file_mark(os.path.join(folder, path))
        if entry["copy"] is None and there is not None and there[:1] == entry["original"][:1]:
            entry["copy"], entry["before"] = there, None
    manifest.save()


def check_path(path: str) -> None:
    """Raise Conflict for a path that is not below the folder."""
    if path.startswith("/") or any(part in ("", ".", "..") for part in path.split("/")):
        raise Conflict(f"`{path}` is not a path inside the folder")


class _Manifest:
    def __init__(self, folder: str) -> None:
        parent, name = os.path.split(os.path.normpath(folder))
        self._path = os.path.join(parent, _MANIFESTS, f"{name}.json")
        self.files: dict[str, dict[str, Any]] = {}
        try:
            with open(self._path, encoding="utf-8") as file:
                self.files = json.load(file)["files"]
        except (OSError, ValueError, KeyError):
            pass  # without it, no file is taken for a copy

    def save(self) -> None:
        os.makedirs(os.path.dirname(self._path), 0o700, exist_ok=True)
        temporary = f"{self._path}.{os.getpid()}"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump({"files": self.files}, file)
        os.replace(temporary, self._path)


def file_mark(path: str) -> Mark | None:
    """Size and time of a file, or the target of a link; None if there is no such thing.

    Both sides of a sync call it. OTHER stands for folders and special files.
    """
    try:
        info = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISLNK(info.st_mode):
        return [os.readlink(path)]
    return [info.st_size, info.st_mtime_ns] if stat.S_ISREG(info.st_mode) else OTHER


def _is_same(there: Mark, mark: Mark) -> bool:
    """Whether the file on the box is a copy that was received without being recorded."""
    if len(there) != len(mark) or there[0] != mark[0]:
        return False
    return len(there) == 1 or abs(int(there[1]) - int(mark[1])) <= _CLOCK_NS


def _is_inside(folder: str, path: str) -> bool:
    """Whether the path stays in the folder when links to folders are followed."""
    root = os.path.realpath(folder)
    parent = os.path.realpath(os.path.join(folder, os.path.dirname(path)))
    return parent == root or parent.startswith(f"{root}/")


def _clear_parents(folder: str, path: str) -> list[str]:
    """Rename files that are where folders of the path must be. Returns the new names."""
    parts = path.split("/")[:-1]
    for count in range(1, len(parts) + 1):
        parent = "/".join(parts[:count])
        full = os.path.join(folder, parent)
        if os.path.lexists(full) and not os.path.isdir(full):
            return [_rename(folder, parent)]
    return []


def _rename(folder: str, path: str) -> str:
    """Give a file that a job made another name, and return it."""
    name, number = f"{path}{_KEPT}", 1
    while os.path.lexists(os.path.join(folder, name)):
        number += 1
        name = f"{path}{_KEPT}.{number}"
    os.rename(os.path.join(folder, path), os.path.join(folder, name))
    return name


def _remove(folder: str, path: str) -> None:
    os.unlink(os.path.join(folder, path))
    parent = os.path.dirname(path)
    while parent:
        try:
            os.rmdir(os.path.join(folder, parent))
        except OSError:
            return  # it has other files
        parent = os.path.dirname(parent)
