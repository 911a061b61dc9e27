"""The hosts with fake GPUs of tests/engine/gpus."""

from tests.engine.gpus.conftest import gpu_lab, host, new_host, nvml_library

__all__ = ["gpu_lab", "host", "new_host", "nvml_library"]
