"""The file through which an instance gets into its process: a plain pickle, and a little behind it.

Whatever reads the file with `pickle.load` gets the task, as ever. Behind the pickle is what the
process has to know before it can read that: where modules are found, and how the main script was
started. Files without it, which the original made, are read as well.
"""

from __future__ import annotations

import os
import sys

# Not `pickle`, which imports a lot that most tasks have no use for.
from _pickle import PicklingError, dumps, loads

from stoker.compat.gpu_task_scheduler import main_script as script
from stoker.compat.gpu_task_scheduler.class_by_name import NamedTask
from stoker.core.record import Record
from stoker.errors import NoPermission
from stoker.functions.import_paths import own_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MAGIC = b"stoker-1"
_SIZE_BYTES = 8


class Origin(Record):
    """Where a task class comes from, and what its process has to know of ours."""

    module: str
    path: str  # of its file; none when the class goes by value
    more: dict[str, Any]
    names: frozenset[str] = frozenset()  # of the main script, where the class is one of those


class Content(Record):
    task: bytes
    more: dict[str, Any]


def origin_of(task_class: type | str) -> Origin:
    more: dict[str, Any] = {"path": own_path()}
    if isinstance(task_class, str):  # imported over there, and nothing of it here
        return Origin(NamedTask.__module__, "", more)
    module = task_class.__module__
    path = _file_of(module)
    names: frozenset[str] = frozenset()
    if module == "__main__" and path:
        more["class"] = task_class.__qualname__
        more["argv"] = list(sys.argv)
        more["package"] = getattr(sys.modules[module], "__package__", None)
        names = frozenset(script.names_of(path))
        more["values"] = script.values_for_main_only(names)
        names |= more["values"].keys()
    return Origin(module, path, more, names)


def _file_of(module: str) -> str:
    path = getattr(sys.modules.get(module), "__file__", None)
    if path is None:
        return ""
    path = os.path.abspath(path.removesuffix("c") if path.endswith(".pyc") else path)
    return path if os.path.isfile(path) else ""


def pack(task: object, origin: Origin) -> bytes:
    """By name where the process finds the class in its file, else by value."""
    try:
        if not origin.path and origin.module == "__main__":
            raise PicklingError("there is no file to find the class in")
        return dumps(task)
    except Exception:
        return script.by_value(task, origin.names)


def write(folder: str, task: bytes, origin: Origin) -> str:
    """A new file of a name that nobody else uses."""
    more = dumps(origin.more)
    path = os.path.join(os.path.abspath(folder), f".{os.getpid()}.{os.urandom(6).hex()}.pkl")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(task + more + len(more).to_bytes(_SIZE_BYTES, "big") + _MAGIC)
    return path


def keep(path: str, slot: str) -> None:
    """One file is left for each slot, under the name it always had."""
    name = f"gpu{slot}_worker.pkl".replace("/", "_")  # slices of a card have such names
    try:
        os.replace(path, os.path.join(os.path.dirname(path), name))
    except OSError:
        pass  # the folder is gone


def remove(path: str) -> None:
    """One that no process has read."""
    try:
        os.unlink(path)
    except OSError:
        pass


def read(path: str, must_be_ours: bool) -> Content:
    """Reading runs code, so a file in a folder for all has to be one that nobody else wrote."""
    with open(path, "rb") as file:
        info = os.fstat(file.fileno())
        if must_be_ours and (info.st_uid != os.geteuid() or info.st_mode & 0o022):
            raise NoPermission(f"`{path}` may have been written by somebody else, and is not read")
        data = file.read()
    end = len(data) - len(_MAGIC) - _SIZE_BYTES
    if end >= 0 and data.endswith(_MAGIC):
        begin = end - int.from_bytes(data[end : end + _SIZE_BYTES], "big")
        if begin >= 0:
            return Content(data[:begin], loads(data[begin:end]))
    return Content(data, {})
