"""`GPUTaskScheduler`: the instances of a configuration, as many at a time as there are slots."""

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
    """`gpu_task_class` is a class, or the name of one that only its tasks should import."""

    def __init__(self, config: dict[str, Any], gpu_task_class: type | str) -> None:
        hiding.show_all()
        if isinstance(gpu_task_class, str):
            split_name(gpu_task_class)
        ours = dict(config)
        if "scheduler_config" in ours:  # the caller's own is left as it is
            ours["scheduler_config"] = {**ours["scheduler_config"]}
            if "gpu" in ours["scheduler_config"]:
                ours["scheduler_config"]["gpu"] = copy.copy(ours["scheduler_config"]["gpu"])
        self._config_manager = ConfigManager(ours)
        self._config = self._config_manager.get_all_scheduler_config()
        self._gpu_task_class = gpu_task_class
        self._log = SchedulerLog(self._config["scheduler_log_file_path"])
        if not script.is_being_read():  # in a task: what that logs is its own
            self._log.configure()

    def start(self) -> None:
        """Run all instances; returns when they have ended. SIGUSR1: start no more of them."""
        if script.is_only_read():
            return
        with self._log:
            run = Run(self._config_manager, self._gpu_task_class, self._log)
            before = _listen(run)
            try:
                run.work()
            finally:
                run.close()
                if before is not None:
                    signal.signal(signal.SIGUSR1, before)
        count_failed(run.failed)


def _listen(run: Run) -> Any:
    """Only where nobody else listens, and where Python lets us."""
    try:
        if signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
            return signal.signal(signal.SIGUSR1, run.drain)
    except ValueError:
        pass  # not the main thread
    return None
