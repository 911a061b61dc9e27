"""`GPUTask`."""

from stoker.compat.task_scheduler_task import GPUTask

__all__ = ["GPUTask"]
