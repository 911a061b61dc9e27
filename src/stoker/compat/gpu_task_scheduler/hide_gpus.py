"""Hide the GPUs while a module with a task class is imported.

Some frameworks allocate memory on every GPU when they are imported, but a program imports its task
class only to pass it to the scheduler. So CUDA_VISIBLE_DEVICES is empty while a module that imports
GPUTask is imported: from its first line if this library was imported before, else from its import
of GPUTask. It is restored when the task class is defined or the import ends.

GPUs are not hidden

- from the main script, which may count the GPUs for its configuration,
- inside a job, which has its own GPUs,
- in child processes of multiprocessing, which import modules again,
- with STOKER_COMPAT_SHOW_GPUS=1.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_VARIABLE = "CUDA_VISIBLE_DEVICES"
IN_A_JOB = "STOKER_JOB_ID"
OPT_OUT = "STOKER_COMPAT_SHOW_GPUS"
_OWN_PACKAGES = ("stoker", "gpu_task_scheduler")
_IMPORTLIB = ("importlib", "_frozen_importlib", "_frozen_importlib_external")
_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep
_INSTALLED = ("site-packages", "dist-packages")


class _GpuHider:
    """Keeps CUDA_VISIBLE_DEVICES empty while any of the given modules is imported."""

    def __init__(self) -> None:
        self._modules: set[str] = set()
        self._saved: str | None = None

    def hide(self, module: str) -> None:
        if not _may_hide():
            return
        if not self._modules:
            self._saved = os.environ.get(_VARIABLE)
            os.environ[_VARIABLE] = ""
        self._modules.add(module)

    def show(self, module: str) -> None:
        if module in self._modules:
            self._modules.discard(module)
            if not self._modules:
                self._restore()

    def show_all(self) -> None:
        if self._modules:
            self._modules.clear()
            self._restore()

    def _restore(self) -> None:
        if os.environ.get(_VARIABLE) != "":
            return  # the program has set it meanwhile
        if self._saved is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = self._saved


class _WatchedSpec(ModuleSpec):
    """A module spec that hides the GPUs while its module is imported.

    importlib sets `_initializing` at the start and end of an import, to detect circular imports.
    """

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "_initializing":
            if value:
                _hider.hide(self.name)
            else:
                super().__setattr__("__class__", ModuleSpec)  # a plain spec again
                _hider.show(self.name)


class _Finder:
    """A meta path finder that delegates to the others and watches modules that import GPUTask."""

    def __init__(self) -> None:
        import re  # not at module level, because tasks do not need it

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
        """Whether the source imports GPUTask. Installed packages are not read."""
        path = spec.origin
        if not spec.has_location or path is None or not path.endswith(".py"):
            return False
        if path.startswith(_STANDARD_LIBRARY) or any(
            folder in path.split(os.sep) for folder in _INSTALLED
        ):
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
    """Hide the GPUs from the module that imports GPUTask first; its import has already begun."""
    name = _importer()
    spec = getattr(sys.modules.get(name), "__spec__", None)
    if name == "__main__" or not getattr(spec, "_initializing", False):
        return  # the end of its import could not be detected
    if type(spec) is ModuleSpec:
        spec.__class__ = _WatchedSpec
    if isinstance(spec, _WatchedSpec):
        _hider.hide(spec.name)


def watch() -> None:
    """Install the finder, once."""
    if _may_hide() and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _importer() -> str:
    """The name of the module that imports this library."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] not in (*_OWN_PACKAGES, *_IMPORTLIB):
            return name
    return "__main__"


_hider = _GpuHider()
show = _hider.show
show_all = _hider.show_all
