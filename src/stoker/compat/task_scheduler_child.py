"""The process of one instance: `start_gpu_task PKL MODULE MODULE_PATH CWD`.

Its GPU and all its variables are set before anything of the user's is imported.
"""

from __future__ import annotations

import os
import sys
from _pickle import loads

from stoker.compat import task_scheduler_hiding as hiding
from stoker.compat import task_scheduler_pickle as pickles
from stoker.compat import task_scheduler_script as script
from stoker.compat.task_scheduler_named import NamedTask
from stoker.errors import Error
from stoker.functions.paths import extend_path

_USAGE = "usage: start_gpu_task PKL MODULE MODULE_PATH CWD"


def main() -> int:
    words = sys.argv[1:]
    if len(words) != 4:
        print(_USAGE, file=sys.stderr)
        return 2
    os.environ.setdefault(hiding.OPT_OUT, "1")
    # Few tasks have a screen to draw on. One variable, which who wants another backend can change.
    os.environ.setdefault("MPLBACKEND", "Agg")
    path, module, module_path, cwd = words
    try:
        content = pickles.read(path, must_be_ours=hiding.IN_A_JOB in os.environ)
    except (Error, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    more = content.more
    extend_path(more.get("path", []))
    sys.path.append(cwd)
    if module == "__main__" and module_path:
        sys.argv = more.get("argv", [module_path])
        script.read(module_path, more.get("class", ""), more.get("package"), more.get("values", {}))
    elif module != "__main__":
        _load(module, module_path)
    task = loads(content.task)
    if isinstance(task, NamedTask):
        task = task.made()
    task.main()
    return 0


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
        import_module(name)
        return
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    if package in sys.modules:
        setattr(sys.modules[package], name.rpartition(".")[2], module)


if __name__ == "__main__":
    sys.exit(main())
