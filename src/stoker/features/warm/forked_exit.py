"""The end of a forked job: as the interpreter would end, but without destroying its libraries.

fork_server.py loads this file. It imports only the standard library.

When a process exits, the destructors of C and C++ libraries run. Those of torch take 0.3 s in a
forked process, because they write to, and so copy, the memory of the fork server, and they do
nothing that the kernel would not do. So threads are joined, exit functions run, objects of the
program are deleted and all files are flushed, as at any exit, and then the process ends at once. A
process with a library of another package than those listed here, or of the user, ends in the usual
way: its library might write something when it is destroyed.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

# Installed packages whose libraries only free memory when they are destroyed.
_PACKAGES = (
    "PIL _yaml charset_normalizer functorch markupsafe msgspec numpy nvidia pandas pillow psutil"
    " pydantic_core regex safetensors scikit_learn scipy sklearn tokenizers torch torchaudio"
    " torchvision triton yaml"
)
# A program gets the libraries of its system through the interpreter or a package.
_SYSTEM = ("/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/", "/usr/local/cuda")
_INSTALLED = ("site-packages/", "dist-packages/")


def exit_quickly(status: int, files: list[object], at_start: frozenset[str]) -> None:
    """End this process if no library objects; otherwise return, and the interpreter ends it.

    `files`: open files of the fork server. `at_start`: modules that every program finds.
    """
    is_usual = not (os.environ.get("PYTHONINSPECT") or os.environ.get("LD_PRELOAD"))
    if not is_usual or sys.flags.inspect or not _are_known(_libraries()):
        return
    try:
        threading = sys.modules.get("threading")
        if threading is not None:
            threading._shutdown()
        atexit._run_exitfuncs()
    except BaseException:
        return  # the interpreter shows such errors
    if not _is_flushed(sys.stdout, sys.stderr):
        return
    _flush_all(files)
    _delete_objects(at_start)
    _flush_all(files)
    if not _is_flushed(sys.stdout, sys.stderr) or not _are_known(_libraries()):
        return
    _flush_c_files()
    os._exit(status)


def open_files() -> list[object]:
    """The open files of this process."""
    return [one for one in gc.get_objects() if issubclass(type(one), io.IOBase)]


def _flush_all(files: list[object]) -> None:
    for one in (*files, *gc.get_objects()):
        if issubclass(type(one), io.IOBase):
            try:
                if not one.closed:
                    one.flush()
            except Exception:
                pass  # as in a destructor


def _delete_objects(at_start: frozenset[str]) -> None:
    """Delete the global objects of the program and of its own modules, as the interpreter does."""
    names = [
        name
        for name, module in sys.modules.items()
        if name == "__main__" or (name not in at_start and _is_own(module))
    ]
    # First those that nothing else refers to, then the contents of the others.
    left = [weakref.ref(sys.modules.pop(name)) for name in reversed(names)]
    gc.collect()
    for module in filter(None, [reference() for reference in left]):
        space = module.__dict__
        for key in sorted(space, key=lambda key: not key.startswith("_")):
            if key != "__builtins__":
                space[key] = None
    gc.collect()


def _is_own(module: ModuleType) -> bool:
    """Whether a module belongs to the program: it is neither installed nor a standard module."""
    path = module.__dict__.get("__file__") if type(module) is type(sys) else None
    if not isinstance(path, str):
        return False
    standard = os.path.dirname(os.__file__) + os.sep
    return not path.startswith(standard) and not any(part in path for part in _INSTALLED)


def _is_flushed(*streams: object) -> bool:
    """Flush streams; if one fails, the interpreter has to report that with its exit code."""
    for stream in streams:
        try:
            if stream is not None and not stream.closed:  # type: ignore[attr-defined]
                stream.flush()  # type: ignore[attr-defined]
        except Exception:
            return False
    return True


def _flush_c_files() -> None:
    try:
        import ctypes

        ctypes.CDLL(None).fflush(None)
    except (ImportError, OSError, AttributeError):
        pass


def _libraries() -> set[str]:
    """The paths of the libraries in this process."""
    with open("/proc/self/maps", "rb") as file:
        words = (line.split(None, 5) for line in file)
        found = {os.fsdecode(some[5].rstrip()) for some in words if len(some) == 6}
    return {path for path in found if ".so" in os.path.basename(path)}


def _are_known(paths: set[str]) -> bool:
    return all(map(_is_known, paths))


def _is_known(path: str) -> bool:
    for folder in _INSTALLED:
        _, found, inner = path.partition(folder)
        if found:
            name = inner.partition("/" if "/" in inner else ".")[0]
            return name.replace(".libs", "") in _PACKAGES.split()
    return path.startswith((*_SYSTEM, f"{sys.prefix}/lib/", f"{sys.base_prefix}/lib/"))
