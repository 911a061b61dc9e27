"""What is known about a result folder: whose parameters it has, and how the runs in it ended.

The record is an extended attribute of the folder: it goes where the folder goes, and nobody who
lists the folder sees it. Where a file system has none, it is a hidden file. A folder without a
record was made by somebody else, the original for example.

Several stages may work in one folder (training, then generation), so there is an end for each. A
lock on the folder itself, which the kernel drops with its holder, tells a run that goes on from one
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
    old_key: str  # by which records of before know it; classes of one name share it


class Folder:
    """One result folder, from the view of one stage."""

    def __init__(self, path: str, stage: Stage, params: str) -> None:
        self.path = path
        self.stage = stage
        self.params = params
        self._lock: int | None = None
        self._beside = RunningMarker(path, stage.key)

    def is_finished(self) -> bool:
        """Whether nothing is left to do here; it exists."""
        ends = _read(self.path).get("ends", {})
        own = ends.get(self.stage.key, ends.get(self.stage.old_key))
        if own is None and self._beside.exists():
            own = BEGUN  # in a folder that its task made anew
        if own is None:  # made by somebody else, or by a stage before this one
            return not ends or DONE in ends.values()
        return bool(own == DONE) or (own == BEGUN and not self._take())

    def _take(self) -> bool:
        """Nobody is at it, nor will another one be before we are."""
        return not self._beside.is_held() and self._hold(fcntl.LOCK_EX)

    def make(self) -> bool:
        """Make it if it is not there; False when somebody else did so this very moment."""
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
        self._beside.write()
        self._note(BEGUN)

    def hold(self) -> None:
        """Others see that somebody is at it, also after its task made it anew."""
        self._hold(fcntl.LOCK_SH)
        self._beside.hold()

    def restore(self) -> None:
        """Write the record again where a task made the folder anew."""
        if self.stage.key not in _read(self.path).get("ends", {}):
            self._note(BEGUN)

    def end(self, is_good: bool) -> None:
        self._note(DONE if is_good else FAILED)
        self._beside.remove()
        self.release()

    def leave(self) -> None:
        """Its task was interrupted, and nothing is left of it."""
        self.restore()
        self._beside.remove()
        self.release()

    def release(self) -> None:
        self._beside.release()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _hold(self, how: int) -> bool:
        """Lock it, unless that would have to wait."""
        if self._lock is None:
            self._lock = open_folder(self.path)
        if self._lock is None:
            return True
        try:
            fcntl.flock(self._lock, how | fcntl.LOCK_NB)
        except BlockingIOError:
            self._unlock()
            return False
        except OSError:
            pass  # a file system without locks: nobody can tell, so go on
        return True

    def _note(self, end: str) -> None:
        record = _read(self.path)
        record.setdefault("params", self.params)
        ends = record.setdefault("ends", {})
        if ends.get(self.stage.old_key) != DONE:  # which may be that of another class
            ends.pop(self.stage.old_key, None)
        ends[self.stage.key] = end
        _write(self.path, json.dumps(record).encode())


def params_of(path: str) -> str | None:
    """Whose parameters a folder has; None when nobody knows."""
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
    is_ours = isinstance(record, dict) and isinstance(record.get("ends", {}), dict)
    return record if is_ours else {}


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
        pass  # a folder of somebody else: as without a record, as in the original
