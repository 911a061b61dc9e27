"""The file that passes an instance to its process: a pickle, followed by metadata.

`pickle.load` on the file returns the task, as with the original. The metadata is what the process
needs before it can unpickle the task: `sys.path`, and the arguments of the main script. Files
without metadata, which the original writes, can be read too.
"""

from __future__ import annotations

import os
import sys

# Not `pickle`, which imports many modules that most tasks do not need.
from _pickle import dumps, loads
from typing import Any

from stoker.errors import NoPermission
from stoker.functions.payload import own_path
from stoker.record import Record

_MAGIC = b"stoker-1"
_SIZE_BYTES = 8


class Origin(Record):
    """The module of a task class, and the metadata for the process of a task."""

    module: str
    path: str  # of its file; empty if the class is pickled by value
    metadata: dict[str, Any]


class Content(Record):
    task: bytes
    metadata: dict[str, Any]


def origin_of(task_class: type) -> Origin:
    module = task_class.__module__
    metadata: dict[str, Any] = {"path": own_path()}
    if module == "__main__":  # passed by value, because its script must not be executed again
        return Origin(module, "", {**metadata, "argv": list(sys.argv)})
    return Origin(module, _file_of(module), metadata)


def _file_of(module: str) -> str:
    path = getattr(sys.modules.get(module), "__file__", None)
    if path is None:
        return ""
    path = os.path.abspath(path.removesuffix("c") if path.endswith(".pyc") else path)
    return path if os.path.isfile(path) else ""


def pack(task: object, origin: Origin) -> bytes:
    """Pickle the task: by reference if its process can import the class, else by value."""
    try:
        if origin.module != "__main__":
            return dumps(task)
    except Exception:
        pass
    import cloudpickle  # type: ignore[import-untyped]  # slow to import

    data: bytes = cloudpickle.dumps(task)
    return data


def write(folder: str, task: bytes, origin: Origin) -> str:
    """Write the task to a new file with a unique name; returns its path."""
    metadata = dumps(origin.metadata)
    path = os.path.join(os.path.abspath(folder), f".{os.getpid()}.{os.urandom(6).hex()}.pkl")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(task + metadata + len(metadata).to_bytes(_SIZE_BYTES, "big") + _MAGIC)
    return path


def keep(path: str, slot: str) -> None:
    """Rename the file to the name of the original; the last file of each slot is kept."""
    name = f"gpu{slot}_worker.pkl".replace("/", "_")  # MIG UUIDs may contain slashes
    try:
        os.replace(path, os.path.join(os.path.dirname(path), name))
    except OSError:
        pass  # the folder was removed


def remove(path: str) -> None:
    """Remove the file of a task that never started."""
    try:
        os.unlink(path)
    except OSError:
        pass


def read(path: str, must_be_private: bool) -> Content:
    """Read a task file. Raises NoPermission if another user could have written it.

    Unpickling runs code, and the temp folder may be shared.
    """
    with open(path, "rb") as file:
        info = os.fstat(file.fileno())
        if must_be_private and (info.st_uid != os.geteuid() or info.st_mode & 0o022):
            raise NoPermission(f"`{path}` may have been written by another user and is not read")
        data = file.read()
    end = len(data) - len(_MAGIC) - _SIZE_BYTES
    if end >= 0 and data.endswith(_MAGIC):
        begin = end - int.from_bytes(data[end : end + _SIZE_BYTES], "big")
        if begin >= 0:
            return Content(data[:begin], loads(data[begin:end]))
    return Content(data, {})
