"""The imports of simple_gpu_scheduler, run by Stoker (docs/coming-from/simple_gpu_scheduler.md)."""
