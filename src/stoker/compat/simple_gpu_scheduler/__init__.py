"""The commands of ExpectationMax/simple_gpu_scheduler."""
