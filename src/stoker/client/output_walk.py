"""Walk the output folder of a job without ever leaving it.

A job can put anything into its folder while the walk runs: links, FIFOs, millions of files.
Folders are opened relative to their parent (openat) and without following links, so replacing one
by a link cannot lead elsewhere; only regular files are reported, and never opened here.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator

from stoker.record import Record

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class FoundFile(Record):
    """A regular file: its path below the folder, with `/` between parts."""

    path: str
    size: int
    mtime_ns: int


class WalkLimits(Record):
    max_entries: int = 5000  # of all folders together, whatever they are
    max_depth: int = 8
    max_folders: int = 500


class Walk:
    """One walk: iterate over it, then read what it left out.

    `enters` decides by its path below the root whether a folder is entered.
    """

    def __init__(
        self,
        folder: str,
        limits: WalkLimits,
        enters: Callable[[str], bool] = lambda path: True,
    ) -> None:
        self._folder = folder
        self._limits = limits
        self._enters = enters
        self._entries = 0
        self.is_cut = False  # a limit was reached
        self.skipped = 0  # links, FIFOs, sockets and devices
        self.folders: dict[str, int] = {}  # modification times of the folders that were read

    def __iter__(self) -> Iterator[FoundFile]:
        try:
            root = os.open(self._folder, _FOLDER)
        except OSError:
            return
        yield from self._below(root, "", 0)

    def _below(self, descriptor: int, path: str, depth: int) -> Iterator[FoundFile]:
        """The files of an open folder, which is closed at the end."""
        try:
            self.folders[path] = os.fstat(descriptor).st_mtime_ns
            subfolders = []
            for name, info in self._entries_of(descriptor):
                below = f"{path}/{name}" if path else name
                if stat.S_ISREG(info.st_mode):
                    yield FoundFile(below, info.st_size, info.st_mtime_ns)
                elif not stat.S_ISDIR(info.st_mode):
                    self.skipped += 1
                elif depth >= self._limits.max_depth:
                    self.is_cut = True
                elif self._enters(below):
                    subfolders.append(name)
            for name in subfolders:
                if len(self.folders) >= self._limits.max_folders:
                    self.is_cut = True
                    return
                try:
                    inner = os.open(name, _FOLDER, dir_fd=descriptor)
                except OSError:
                    continue  # removed, replaced or not readable
                yield from self._below(inner, f"{path}/{name}" if path else name, depth + 1)
        finally:
            os.close(descriptor)

    def _entries_of(self, descriptor: int) -> list[tuple[str, os.stat_result]]:
        found = []
        try:
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    if self._entries >= self._limits.max_entries:
                        self.is_cut = True
                        break
                    self._entries += 1
                    try:
                        found.append((entry.name, entry.stat(follow_symlinks=False)))
                    except OSError:
                        pass  # removed in the meantime
        except OSError:
            pass
        return sorted(found, key=lambda one: one[0])


def open_inside(folder: str, path: str) -> int:
    """Open a regular file below a folder; returns the descriptor.

    Raises OSError if there is no such file, if it is not a regular one, or if a part of the path
    is a link, empty, `.` or `..`.
    """
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise FileNotFoundError(path)
    place = os.open(folder, _FOLDER)
    try:
        for part in parts[:-1]:
            inner = os.open(part, _FOLDER, dir_fd=place)
            os.close(place)
            place = inner
        descriptor = os.open(parts[-1], _FILE, dir_fd=place)
    finally:
        os.close(place)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(path)
    return descriptor
