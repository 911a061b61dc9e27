"""The imports of GPU Task Scheduler, run by Stoker (docs/coming-from/gpu_task_scheduler.md)."""

from stoker.compat.gpu_task_scheduler import hide_gpus

hide_gpus.watch()
