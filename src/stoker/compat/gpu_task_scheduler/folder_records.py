"""Records of result folders: their parameters, and how the runs in them ended.

The record is an extended attribute of the folder: it moves with the folder and does not show up in
listings. On a file system without attributes it is a hidden file. A folder without a record was
created by another program, for example the original.

Several stages may work in one folder (training, then generation); the end of each is recorded. A
lock on the folder, which the kernel releases with its holder, distinguishes a running task from one
that was killed.

A task may delete and recreate its folder, which also deletes the record. So a running instance has
a marker in the parent folder too, with a lock that shows whether it still runs.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from stoker.text.flock import FLOCK

_ATTRIBUTE = "user.stoker.tasks"
_FILE = ".stoker-tasks.json"
_MARKER = "user.stoker.begun."
_MARKER_FILE = ".stoker-begun-"
_MAX_OFFSET = 1 << 62
BEGUN, DONE, FAILED = "begun", "done", "failed"


class Folder:
    """One result folder, as seen by one stage."""

    def __init__(self, path: str, stage: str, params: str) -> None:
        self.path = path
        self.stage = stage
        self.params = params
        self._lock: int | None = None
        self._marker = _RunningMarker(path, stage)

    def is_finished(self) -> bool:
        """Whether the stage need not run in this folder, which must exist."""
        ends = _read(self.path).get("ends", {})
        own = ends.get(self.stage)
        if own is None and self._marker.exists():
            own = BEGUN  # its task has recreated the folder
        if own is None:  # created by another program or an earlier stage
            return not ends or DONE in ends.values()
        return bool(own == DONE) or (own == BEGUN and not self._try_take())

    def _try_take(self) -> bool:
        """Lock the folder exclusively, unless another process works in it."""
        return not self._marker.is_held() and self._try_lock(fcntl.LOCK_EX)

    def make(self) -> bool:
        """Create the folder; False if another process has just created it."""
        parent = os.path.dirname(self.path.rstrip("/"))
        if parent:
            os.makedirs(parent, exist_ok=True)
        try:
            os.mkdir(self.path)
        except FileExistsError:
            return False
        return True

    def begin(self) -> None:
        self.hold()
        self._marker.write()
        self._record_end(BEGUN)

    def hold(self) -> None:
        """Lock the folder and the marker, which also survives a task that recreates its folder."""
        self._try_lock(fcntl.LOCK_SH)
        self._marker.hold()

    def restore(self) -> None:
        """Write the record again if the task has recreated the folder."""
        if self.stage not in _read(self.path).get("ends", {}):
            self._record_end(BEGUN)

    def end(self, is_good: bool) -> None:
        self._record_end(DONE if is_good else FAILED)
        self._marker.remove()
        self.release()

    def leave(self) -> None:
        """Release the folder of an interrupted task, which will run again."""
        self.restore()
        self._marker.remove()
        self.release()

    def release(self) -> None:
        self._marker.release()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _try_lock(self, mode: int) -> bool:
        """Lock the folder without waiting; False if another process holds a conflicting lock."""
        if self._lock is None:
            self._lock = _open_folder(self.path)
        if self._lock is None:
            return True
        try:
            fcntl.flock(self._lock, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            self._unlock()
            return False
        except OSError:
            pass  # a file system without locks: continue without
        return True

    def _record_end(self, end: str) -> None:
        record = _read(self.path)
        record.setdefault("params", self.params)
        record.setdefault("ends", {})[self.stage] = end
        _write(self.path, json.dumps(record).encode())


def params_of(path: str) -> str | None:
    """The digest of the parameters of a folder; None without a record."""
    params = _read(path).get("params")
    return params if isinstance(params, str) else None


def _read(path: str) -> dict[str, Any]:
    try:
        data = os.getxattr(path, _ATTRIBUTE)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        try:
            with open(os.path.join(path, _FILE), "rb") as file:
                data = file.read()
        except (OSError, ValueError):
            return {}
    try:
        record = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    is_valid = isinstance(record, dict) and isinstance(record.get("ends", {}), dict)
    return record if is_valid else {}


def _write(path: str, data: bytes) -> None:
    try:
        os.setxattr(path, _ATTRIBUTE, data)
        return
    except OSError:
        pass
    temporary = os.path.join(path, f"{_FILE}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
        os.replace(temporary, os.path.join(path, _FILE))
    except OSError:
        pass  # not writable: the folder stays without a record, as in the original


class _RunningMarker:
    """The marker of one stage in one result folder."""

    def __init__(self, path: str, stage: str) -> None:
        self._parent, name = os.path.split(os.path.abspath(path))
        digest = hashlib.sha256(f"{name}\0{stage}".encode("utf-8", "surrogatepass")).hexdigest()
        self._attribute = _MARKER + digest[:16]
        self._file = os.path.join(self._parent, _MARKER_FILE + digest[:16])
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
            self._lock = _open_folder(self._parent)
        if self._lock is not None:
            try:
                fcntl.fcntl(self._lock, fcntl.F_OFD_SETLK, self._flock(fcntl.F_RDLCK))
            except OSError:
                pass  # a file system without locks

    def is_held(self) -> bool:
        descriptor = _open_folder(self._parent)
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


def _open_folder(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None


# -- stages ----------------------------------------------------------------------------------------


def stage_of(task_class: type, rules: Mapping[str, Any]) -> str:
    """The key of a kind of work (training, generation): its task class and its log file."""
    module = getattr(task_class, "__module__", "")
    name = getattr(task_class, "__qualname__", "")
    if module == "__main__":
        module = _script(str(rules["result_root_folder"]))
    text = f"{module}:{name} {rules['log_file']}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def _script(results: str) -> str:
    """The path of the main script relative to the results, so that a project can be moved."""
    path = getattr(sys.modules["__main__"], "__file__", None)
    if path is None:
        return "__main__"
    return os.path.relpath(os.path.realpath(path), os.path.realpath(results))
