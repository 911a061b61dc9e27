"""Unpickles calls and results, also those written by a release whose modules had other names."""

from __future__ import annotations

import io
import pickle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The modules of 0.1 whose classes and functions are part of pickled calls, and where they are now.
_MOVED = {
    "stoker.executor": ("stoker.python.executor",),
    "stoker.handles": ("stoker.python.job", "stoker.python.job_errors", "stoker.python.wait"),
    "stoker.inside": ("stoker.functions.current_job",),
    "stoker.python_api": ("stoker.python.api",),
    "stoker.sweep_api": ("stoker.python.sweep",),
}
_RENAMED = {"_attached": "open_job"}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        for new in _MOVED.get(module, ()):
            try:
                return super().find_class(new, _RENAMED.get(name, name))
            except AttributeError:
                continue
        return super().find_class(module, name)


def load(stream: io.BytesIO) -> Any:
    """Return the next object of a stream; raises what unpickling it raises."""
    return _Unpickler(stream).load()


def loads(data: bytes) -> Any:
    return load(io.BytesIO(data))
