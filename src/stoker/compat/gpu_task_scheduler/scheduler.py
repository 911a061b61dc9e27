"""`GPUTaskScheduler`: runs the instances of a configuration, one per slot at a time."""

from __future__ import annotations

import copy
import signal
from typing import Any

from stoker.compat.gpu_task_scheduler import hide_gpus as hiding
from stoker.compat.gpu_task_scheduler import main_script as script
from stoker.compat.gpu_task_scheduler.class_by_name import split_name
from stoker.compat.gpu_task_scheduler.config import ConfigManager
from stoker.compat.gpu_task_scheduler.exit_status import count_failed
from stoker.compat.gpu_task_scheduler.log import SchedulerLog
from stoker.compat.gpu_task_scheduler.run import Run


class GPUTaskScheduler:
    """`gpu_task_class` is a class, or `MODULE.CLASS`, which only the tasks import."""

    def __init__(self, config: dict[str, Any], gpu_task_class: type | str) -> None:
        hiding.show_all()
        if isinstance(gpu_task_class, str):
            split_name(gpu_task_class)
        own = dict(config)
        if "scheduler_config" in own:  # do not change the caller's dict
            own["scheduler_config"] = {**own["scheduler_config"]}
            if "gpu" in own["scheduler_config"]:
                own["scheduler_config"]["gpu"] = copy.copy(own["scheduler_config"]["gpu"])
        self._config_manager = ConfigManager(own)
        self._config = self._config_manager.get_all_scheduler_config()
        self._gpu_task_class = gpu_task_class
        self._log = SchedulerLog(self._config["scheduler_log_file_path"])
        if not script.is_being_read():  # not inside a task, which configures its own logging
            self._log.configure()

    def start(self) -> None:
        """Run all instances and return when they have finished. SIGUSR1 drains."""
        if script.is_only_read():
            return
        with self._log:
            run = Run(self._config_manager, self._gpu_task_class, self._log)
            previous = _install_drain_handler(run)
            try:
                run.work()
            finally:
                run.close()
                if previous is not None:
                    signal.signal(signal.SIGUSR1, previous)
        count_failed(run.failed)


def _install_drain_handler(run: Run) -> Any:
    """Handle SIGUSR1, unless the program does; returns the previous handler, if replaced."""
    try:
        if signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
            return signal.signal(signal.SIGUSR1, run.drain)
    except ValueError:
        pass  # not the main thread
    return None
