"""The hosts with fake GPUs of tests/engine/gpus."""

from tests.engine.gpus.conftest import host, new_host, nvml_library

__all__ = ["host", "new_host", "nvml_library"]
