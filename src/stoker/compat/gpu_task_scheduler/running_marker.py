"""A second note of an instance that runs, in the folder above its result folder.

A task may remove its result folder and make it anew, and the record in the folder goes with it. So
there is a note one level up for as long as it runs, with a lock that says whether it still does. It
is an extended attribute, or a hidden file where there is no room for one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct

_ATTRIBUTE = "user.stoker.begun."
_FILE = ".stoker-begun-"
_FLOCK = struct.Struct("hhqqi4x")  # type, whence, start, length, pid
_PLACES = 1 << 62


class RunningMarker:
    """The note of one stage of one result folder."""

    def __init__(self, path: str, stage: str) -> None:
        self._above, name = os.path.split(os.path.abspath(path))
        digest = hashlib.sha256(f"{name}\0{stage}".encode("utf-8", "surrogatepass")).hexdigest()
        self._attribute = _ATTRIBUTE + digest[:16]
        self._file = os.path.join(self._above, _FILE + digest[:16])
        # Read locks at places of one folder: they need no right to write, and never meet.
        self._place = int(digest, 16) % _PLACES
        self._lock: int | None = None

    def exists(self) -> bool:
        try:
            os.getxattr(self._above, self._attribute)
            return True
        except (OSError, ValueError):
            return os.path.exists(self._file)

    def write(self) -> None:
        try:
            os.setxattr(self._above, self._attribute, b"")
        except (OSError, ValueError):
            try:
                os.close(os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            except (OSError, ValueError):
                pass  # a folder of somebody else: there is only the record in the folder then

    def remove(self) -> None:
        try:
            os.removexattr(self._above, self._attribute)
        except (OSError, ValueError):
            pass
        try:
            os.unlink(self._file)
        except (OSError, ValueError):
            pass

    def hold(self) -> None:
        """Until `release`, or the end of this process."""
        if self._lock is None:
            self._lock = open_folder(self._above)
        if self._lock is not None:
            try:
                fcntl.fcntl(self._lock, fcntl.F_OFD_SETLK, self._order(fcntl.F_RDLCK))
            except OSError:
                pass  # a file system without locks: nobody can tell

    def is_held(self) -> bool:
        descriptor = open_folder(self._above)
        if descriptor is None:
            return False
        try:
            answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, self._order(fcntl.F_WRLCK))
            return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
        except OSError:
            return False
        finally:
            os.close(descriptor)

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _order(self, kind: int) -> bytes:
        return _FLOCK.pack(kind, os.SEEK_SET, self._place, 1, 0)


def open_folder(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
