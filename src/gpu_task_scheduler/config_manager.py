"""`ConfigManager`."""

from stoker.compat.task_scheduler_config import ConfigManager

__all__ = ["ConfigManager"]
