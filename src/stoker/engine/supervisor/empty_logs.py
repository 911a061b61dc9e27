"""Removal of empty logs, whose names are recorded.

An empty file costs an inode, and a large run has a hundred thousand of them. The names are lines in
one file for each folder of a thousand jobs, so that `stoker log` can
tell an empty log from a missing one. Each node of a backend has its own, because appends from
several hosts can overwrite each other on a network file system. A name is written before its file
is removed: after a crash between the two, the empty file is still there.
"""

from __future__ import annotations

import os

from stoker.testing.failpoints import failpoint

NAMES_FILE = "no-output"


class EmptyLogs:
    """Removes empty logs. Keeps the last names file open, because jobs mostly end in order."""

    def __init__(self, node: str | None = None) -> None:
        self._file = NAMES_FILE if node is None else f"{NAMES_FILE}-{node}"
        self._folder = ""
        self._names = -1

    def remove(self, path: str) -> None:
        """Remove an empty log; it is kept if its name cannot be recorded."""
        folder, name = os.path.split(path)
        try:
            if folder != self._folder:
                self._open(folder)
            line = f"{name}\n".encode()
            if os.write(self._names, line) == len(line):
                failpoint("runner.before_empty_log_removal")
                os.unlink(path)
        except OSError:
            self._folder = ""

    def _open(self, folder: str) -> None:
        if self._names >= 0:
            os.close(self._names)
            self._names, self._folder = -1, ""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._names = os.open(os.path.join(folder, self._file), flags, 0o600)
        self._folder = folder


def had_no_output(path: str) -> bool:
    """Whether this log is missing because its attempt printed nothing."""
    folder, name = os.path.split(path)
    return name in removed_names(folder)


def removed_names(folder: str) -> frozenset[str]:
    """The logs that were removed from this folder because they were empty."""
    found: set[str] = set()
    try:
        for name in os.listdir(folder):
            if name.startswith(NAMES_FILE):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8", errors="replace") as file:
                    found.update(file.read().split("\n"))
    except OSError:
        pass
    return frozenset(found)
