"""Records of result folders: their parameters, and how the runs in them ended.

The record is an extended attribute of the folder: it moves with the folder and does not show up in
listings. On a file system without attributes it is a hidden file. A folder without a record was
created by another program, for example the original.

Several stages may work in one folder (training, then generation); the end of each is recorded. A
lock on the folder, which the kernel releases with its holder, distinguishes a running task from one
that was killed.
"""

from __future__ import annotations

import fcntl
import json
import os
from typing import Any

from stoker.compat.gpu_task_scheduler.running_marker import RunningMarker, open_folder
from stoker.core.record import Record

_ATTRIBUTE = "user.stoker.tasks"
_FILE = ".stoker-tasks.json"
BEGUN, DONE, FAILED = "begun", "done", "failed"


class Stage(Record):
    """One kind of work in a folder."""

    key: str
    old_key: str  # used by earlier releases; the same for classes with the same name


class Folder:
    """One result folder, as seen by one stage."""

    def __init__(self, path: str, stage: Stage, params: str) -> None:
        self.path = path
        self.stage = stage
        self.params = params
        self._lock: int | None = None
        self._marker = RunningMarker(path, stage.key)

    def is_finished(self) -> bool:
        """Whether the stage need not run in this folder, which must exist."""
        ends = _read(self.path).get("ends", {})
        own = ends.get(self.stage.key, ends.get(self.stage.old_key))
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
        if self.stage.key not in _read(self.path).get("ends", {}):
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
            self._lock = open_folder(self.path)
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
        ends = record.setdefault("ends", {})
        if ends.get(self.stage.old_key) != DONE:  # it may belong to another class of that name
            ends.pop(self.stage.old_key, None)
        ends[self.stage.key] = end
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
