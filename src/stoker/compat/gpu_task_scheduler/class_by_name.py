"""Task classes given by name, so that the scheduler does not import their modules."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class NamedTask:
    """A placeholder for a task, which is created in its own process."""

    def __init__(self, name: str, config: dict[Any, Any], work_dir: str) -> None:
        self._name = name
        self._config = config
        self._work_dir = work_dir

    def required_env(self) -> dict[str, str]:
        return {}  # unknown until the class is imported

    def create(self) -> Any:
        """Create the task; restarts this process if `required_env` needs other variables."""
        from importlib import import_module

        module, name = split_name(self._name)
        task = getattr(import_module(module), name)(self._config, self._work_dir)
        missing = {k: v for k, v in task.required_env().items() if os.environ.get(k) != v}
        if missing:
            os.environ.update(missing)
            sys.stdout.flush()
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
        return task


def split_name(name: str) -> tuple[str, str]:
    """(module, class) of `my_gpu_task.MyGPUTask` or `my_gpu_task:MyGPUTask`."""
    module, _, task_class = name.replace(":", ".").rpartition(".")
    if not module or not task_class:
        raise ValueError(f"`{name}` is not MODULE.CLASS, e.g. my_gpu_task.MyGPUTask")
    return module, task_class
