"""`ConfigManager`."""

from stoker.compat.gpu_task_scheduler.config import ConfigManager

__all__ = ["ConfigManager"]
