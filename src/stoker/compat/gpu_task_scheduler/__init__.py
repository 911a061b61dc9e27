"""The package gpu_task_scheduler."""
