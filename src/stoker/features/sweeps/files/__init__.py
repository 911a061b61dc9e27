"""Sweep files: Stoker's own, and those of W&B, Hydra and gpu_task_scheduler."""
