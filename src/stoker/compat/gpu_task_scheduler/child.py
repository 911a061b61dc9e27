"""The process of one instance: `start_gpu_task PKL MODULE MODULE_PATH CWD`.

Its GPU and all its variables are set before anything of the user's is imported.
"""

from __future__ import annotations

import os
import sys
from _pickle import UnpicklingError, loads

from stoker.compat.gpu_task_scheduler import hide_gpus as hiding
from stoker.compat.gpu_task_scheduler import main_script as script
from stoker.compat.gpu_task_scheduler import task_file as pickles
from stoker.compat.gpu_task_scheduler.class_by_name import NamedTask
from stoker.errors import Error, UsageError
from stoker.functions.import_paths import extend_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_USAGE = "usage: start_gpu_task PKL MODULE MODULE_PATH CWD"


def main() -> int:
    words = sys.argv[1:]
    if words and words[0] in ("-h", "--help"):
        print(_USAGE)
        return 0
    if len(words) != 4:
        print(_USAGE, file=sys.stderr)
        return 2
    os.environ.setdefault(hiding.OPT_OUT, "1")
    # Few tasks have a screen to draw on. One variable, which who wants another backend can change.
    os.environ.setdefault("MPLBACKEND", "Agg")
    try:
        task = _task(*words)
    except Error as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    task.main()
    return 0


def _task(path: str, module: str, module_path: str, cwd: str) -> Any:
    content = _read(path)
    if module_path and not os.path.isfile(module_path):
        raise UsageError(f"there is no file `{module_path}` of the module `{module}`")
    more = content.more
    extend_path(more.get("path", []))
    sys.path.append(cwd)
    if module == "__main__" and module_path:
        sys.argv = more.get("argv", [module_path])
        script.read(module_path, more.get("class", ""), more.get("package"), more.get("values", {}))
    elif module != "__main__":
        _load(module, module_path)
    task = _unpickled(content.task, path)
    if isinstance(task, NamedTask):
        task = task.made()
    if not hasattr(task, "main"):
        raise UsageError(f"`{path}` holds no task")
    return task


def _read(path: str) -> pickles.Content:
    try:
        return pickles.read(path, must_be_ours=hiding.IN_A_JOB in os.environ)
    except OSError as error:
        raise UsageError(f"cannot read `{path}`: {error.strerror}") from None


def _unpickled(data: bytes, path: str) -> Any:
    try:
        return loads(data)
    except Exception as error:
        # Where code of the user's has raised it, people want to see where.
        if isinstance(error, (UnpicklingError, EOFError)) or _is_loads_own(error):
            why = f"{type(error).__name__}: {error}"
            raise UsageError(f"`{path}` holds no task that can be read: {why}") from None
        raise


def _is_loads_own(error: Exception) -> bool:
    return error.__traceback__ is not None and error.__traceback__.tb_next is None


def _load(name: str, path: str) -> None:
    """A module from its file, under its own name, wherever the file is."""
    from importlib import import_module
    from importlib.util import module_from_spec, spec_from_file_location

    package = name.rpartition(".")[0]
    if package:
        try:
            import_module(package)  # which may bring it along
        except ImportError:
            pass
    if name in sys.modules:
        return
    spec = spec_from_file_location(name, path) if path else None
    if spec is None or spec.loader is None:
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            raise UsageError(f"there is no module `{name}`") from None
        return
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    if package in sys.modules:
        setattr(sys.modules[package], name.rpartition(".")[2], module)


if __name__ == "__main__":
    sys.exit(main())
