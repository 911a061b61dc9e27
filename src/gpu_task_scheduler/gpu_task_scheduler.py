"""`GPUTaskScheduler`."""

from stoker.compat.gpu_task_scheduler.scheduler import GPUTaskScheduler

__all__ = ["GPUTaskScheduler"]
