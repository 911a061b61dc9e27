"""A marker in the parent of the result folder while an instance runs.

A task may delete and recreate its result folder, which also deletes the record in the folder. So a
running instance has a second marker one level up, with a lock that shows whether it still runs. The
marker is an extended attribute, or a hidden file where attributes are not available.
"""

from __future__ import annotations

import fcntl
import hashlib
import os

from stoker.core.formats.flock import FLOCK

_ATTRIBUTE = "user.stoker.begun."
_FILE = ".stoker-begun-"
_MAX_OFFSET = 1 << 62


class RunningMarker:
    """The marker of one stage in one result folder."""

    def __init__(self, path: str, stage: str) -> None:
        self._parent, name = os.path.split(os.path.abspath(path))
        digest = hashlib.sha256(f"{name}\0{stage}".encode("utf-8", "surrogatepass")).hexdigest()
        self._attribute = _ATTRIBUTE + digest[:16]
        self._file = os.path.join(self._parent, _FILE + digest[:16])
        # Read locks at different offsets of the folder need no write permission and never conflict.
        self._offset = int(digest, 16) % _MAX_OFFSET
        self._lock: int | None = None

    def exists(self) -> bool:
        try:
            os.getxattr(self._parent, self._attribute)
            return True
        except (OSError, ValueError):
            return os.path.exists(self._file)

    def write(self) -> None:
        try:
            os.setxattr(self._parent, self._attribute, b"")
        except (OSError, ValueError):
            try:
                os.close(os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            except (OSError, ValueError):
                pass  # not writable: only the record in the result folder is left

    def remove(self) -> None:
        try:
            os.removexattr(self._parent, self._attribute)
        except (OSError, ValueError):
            pass
        try:
            os.unlink(self._file)
        except (OSError, ValueError):
            pass

    def hold(self) -> None:
        """Take the lock until `release` or the end of this process."""
        if self._lock is None:
            self._lock = open_folder(self._parent)
        if self._lock is not None:
            try:
                fcntl.fcntl(self._lock, fcntl.F_OFD_SETLK, self._flock(fcntl.F_RDLCK))
            except OSError:
                pass  # a file system without locks

    def is_held(self) -> bool:
        descriptor = open_folder(self._parent)
        if descriptor is None:
            return False
        try:
            answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, self._flock(fcntl.F_WRLCK))
            return bool(FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
        except OSError:
            return False
        finally:
            os.close(descriptor)

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _flock(self, kind: int) -> bytes:
        return FLOCK.pack(kind, os.SEEK_SET, self._offset, 1, 0)


def open_folder(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
