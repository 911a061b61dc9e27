"""The process of one instance: `start_gpu_task PKL MODULE MODULE_PATH CWD`.

The GPU and all variables are set before user code is imported.
"""

from __future__ import annotations

import os
import sys
from _pickle import UnpicklingError, loads
from typing import Any

from stoker.compat.gpu_task_scheduler import hide_gpus as hiding
from stoker.compat.gpu_task_scheduler import task_file as pickles
from stoker.errors import Error, UsageError
from stoker.functions.payload import extend_path

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
    # Few tasks have a display. A task can still select another matplotlib backend.
    os.environ.setdefault("MPLBACKEND", "Agg")
    try:
        task = _load_task(*words)
    except Error as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    task.main()
    return 0


def _load_task(path: str, module: str, module_path: str, cwd: str) -> Any:
    content = _read(path)
    if module_path and not os.path.isfile(module_path):
        raise UsageError(f"the file `{module_path}` of the module `{module}` does not exist")
    metadata = content.metadata
    extend_path(metadata.get("path", []))
    sys.path.append(cwd)
    sys.argv = metadata.get("argv", sys.argv)
    if module != "__main__":
        _load_module(module, module_path)
    task = _unpickle(content.task, path)
    if not hasattr(task, "main"):
        raise UsageError(f"`{path}` does not contain a task")
    return task


def _read(path: str) -> pickles.Content:
    try:
        return pickles.read(path, must_be_private=hiding.IN_A_JOB in os.environ)
    except OSError as error:
        raise UsageError(f"cannot read `{path}`: {error.strerror}") from None


def _unpickle(data: bytes, path: str) -> Any:
    try:
        return loads(data)
    except Exception as error:
        # Show the traceback of an exception in user code.
        if isinstance(error, (UnpicklingError, EOFError)) or _is_raised_by_loads(error):
            reason = f"{type(error).__name__}: {error}"
            raise UsageError(f"cannot unpickle the task in `{path}`: {reason}") from None
        raise


def _is_raised_by_loads(error: Exception) -> bool:
    return error.__traceback__ is not None and error.__traceback__.tb_next is None


def _load_module(name: str, path: str) -> None:
    """Load a module from its file under its own name."""
    from importlib import import_module
    from importlib.util import module_from_spec, spec_from_file_location

    package = name.rpartition(".")[0]
    if package:
        try:
            import_module(package)  # which may also import the module
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
