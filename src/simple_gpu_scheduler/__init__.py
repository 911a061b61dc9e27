"""simple_gpu_scheduler's imports, on Stoker's engine (docs/coming-from/simple_gpu_scheduler.md)."""
