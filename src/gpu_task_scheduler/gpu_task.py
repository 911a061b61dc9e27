"""`GPUTask`."""

from stoker.compat.gpu_task_scheduler.task import GPUTask

__all__ = ["GPUTask"]
