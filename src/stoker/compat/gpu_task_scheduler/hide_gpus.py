"""While a file with a task class is imported, no GPU is seen.

Some frameworks take a part of every GPU as soon as they are imported, and a program imports its
task class only to hand it to the scheduler. So the GPUs are hidden while a file is imported that
imports GPUTask: from its first line, where something of this library was imported before it, else
from where it imports GPUTask. They are back when its class is there, or its import has ended.

Not for the main script, which may want to count the GPUs for its configuration; not in a job, which
has GPUs of its own; not in helpers of a program (multiprocessing imports files once more); and not
with STOKER_COMPAT_SHOW_GPUS=1.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

_VARIABLE = "CUDA_VISIBLE_DEVICES"
IN_A_JOB = "STOKER_JOB_ID"
OPT_OUT = "STOKER_COMPAT_SHOW_GPUS"
_OURS = ("stoker", "gpu_task_scheduler")
_IMPORTING = ("importlib", "_frozen_importlib", "_frozen_importlib_external")
_LIBRARY = os.path.dirname(os.__file__) + os.sep
_INSTALLED = ("site-packages", "dist-packages")


class _GpuHider:
    """Down as long as some file is being imported for which it was let down."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._was: str | None = None

    def hide(self, module: str) -> None:
        if not _may_hide():
            return
        if not self._files:
            self._was = os.environ.get(_VARIABLE)
            os.environ[_VARIABLE] = ""
        self._files.add(module)

    def show(self, module: str) -> None:
        if module in self._files:
            self._files.discard(module)
            if not self._files:
                self._lift()

    def show_all(self) -> None:
        if self._files:
            self._files.clear()
            self._lift()

    def _lift(self) -> None:
        if os.environ.get(_VARIABLE) != "":
            return  # somebody has set it since
        if self._was is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = self._was


class _WatchedSpec(ModuleSpec):
    """Tells when the import of its module begins and ends.

    Python keeps that in `_initializing`, in every version, for its own search for circular imports.
    """

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "_initializing":
            if value:
                _curtain.hide(self.name)
            else:
                super().__setattr__("__class__", ModuleSpec)  # as it was
                _curtain.show(self.name)


class _Finder:
    """Finds what others find, and watches the files that import GPUTask."""

    def __init__(self) -> None:
        import re  # here, because tasks have no use for it

        self._pattern = re.compile(rb"\bgpu_task_scheduler\s*(?:\.|import)[\s(]*gpu_task\b")

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None
            if finder is not self and find is not None:
                spec = find(name, path, target)
            if spec is not None:
                if type(spec) is ModuleSpec and self._imports_task(spec):
                    spec.__class__ = _WatchedSpec
                return spec
        return None

    def _imports_task(self, spec: ModuleSpec) -> bool:
        """Whether its file says so. Files that were installed are not looked into."""
        path = spec.origin
        if not spec.has_location or path is None or not path.endswith(".py"):
            return False
        if path.startswith(_LIBRARY) or any(one in path.split(os.sep) for one in _INSTALLED):
            return False
        try:
            with open(path, "rb") as file:
                return self._pattern.search(file.read()) is not None
        except OSError:
            return False


def _may_hide() -> bool:
    if IN_A_JOB in os.environ or os.environ.get(OPT_OUT, "") not in ("", "0"):
        return False
    processes = sys.modules.get("multiprocessing.process")
    return processes is None or processes.parent_process() is None


def hide() -> None:
    """GPUTask is imported for the first time: the file that does so has begun already."""
    name = _importer()
    spec = getattr(sys.modules.get(name), "__spec__", None)
    if name == "__main__" or not getattr(spec, "_initializing", False):
        return  # nobody would tell us when it is over
    if type(spec) is ModuleSpec:
        spec.__class__ = _WatchedSpec
    if isinstance(spec, _WatchedSpec):
        _curtain.hide(spec.name)


def watch() -> None:
    """From now on, look at what is imported. Once, however often it is asked for."""
    if _may_hide() and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _importer() -> str:
    """The module that imports this library."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] not in (*_OURS, *_IMPORTING):
            return name
    return "__main__"


_curtain = _GpuHider()
show = _curtain.show
show_all = _curtain.show_all
