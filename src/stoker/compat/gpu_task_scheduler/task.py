"""`GPUTask`: the base class of tasks."""

from __future__ import annotations

from typing import Any

from stoker.compat.gpu_task_scheduler import hide_gpus as hiding

hiding.hide()


class GPUTask:
    """One instance: its parameters, its result folder, and its code."""

    def __init__(self, config: dict[Any, Any], work_dir: str) -> None:
        self._config = config
        self._work_dir = work_dir

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        hiding.show(cls.__module__)

    def required_env(self) -> dict[str, str]:
        """Environment variables for `main`; called in the process of the scheduler."""
        return {}

    def main(self) -> None:
        """The work of the task; called in a process of its own."""
