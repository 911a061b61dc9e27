"""GPU Task Scheduler's imports, on Stoker's engine (see docs/coming-from/gpu_task_scheduler.md)."""

from stoker.compat import task_scheduler_hiding

task_scheduler_hiding.watch()
