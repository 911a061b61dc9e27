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

_ATTRIBUTE = "user.stoker.tasks"
_FILE = ".stoker-tasks.json"
BEGUN, DONE, FAILED = "begun", "done", "failed"


class Folder:
    """One result folder, from the view of one stage."""

    def __init__(self, path: str, stage: str, params: str) -> None:
        self.path = path
        self._stage = stage
        self._params = params
        self._lock: int | None = None

    def is_finished(self) -> bool:
        """Whether nothing is left to do here; it exists."""
        ends = _read(self.path).get("ends", {})
        own = ends.get(self._stage)
        if own is None:  # made by somebody else, or by a stage before this one
            return not ends or DONE in ends.values()
        return bool(own == DONE) or (own == BEGUN and not self._hold(fcntl.LOCK_EX))

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
        self._hold(fcntl.LOCK_SH)
        self._note(BEGUN)

    def end(self, is_good: bool) -> None:
        self._note(DONE if is_good else FAILED)
        self.release()

    def release(self) -> None:
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
            self.release()
            return False
        except OSError:
            pass  # a file system without locks: nobody can tell, so go on
        return True

    def _note(self, end: str) -> None:
        record = _read(self.path)
        record.setdefault("params", self._params)
        record.setdefault("ends", {})[self._stage] = end
        _write(self.path, json.dumps(record).encode())


def open_folder(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None


def hold(path: str) -> int | None:
    """Hold a folder as long as the descriptor is open, beside others who do."""
    descriptor = open_folder(path)
    if descriptor is not None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            pass
    return descriptor


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
    except ValueError:
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
