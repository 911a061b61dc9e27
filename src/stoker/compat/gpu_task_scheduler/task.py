"""`GPUTask`: what people derive their tasks from."""

from __future__ import annotations

from stoker.compat.gpu_task_scheduler import hide_gpus as hiding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

hiding.hide()


class GPUTask:
    """One instance: its parameters, its result folder, and the code that makes the results."""

    def __init__(self, config: dict[Any, Any], work_dir: str) -> None:
        self._config = config
        self._work_dir = work_dir

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        hiding.show(cls.__module__)

    def required_env(self) -> dict[str, str]:
        """Variables that `main` needs; asked in the scheduler's process."""
        return {}

    def main(self) -> None:
        """The work, in a process of its own."""
