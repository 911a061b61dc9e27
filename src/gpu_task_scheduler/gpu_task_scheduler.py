"""`GPUTaskScheduler`."""

from stoker.compat.task_scheduler import GPUTaskScheduler

__all__ = ["GPUTaskScheduler"]
