"""`python -m simple_gpu_scheduler.scheduler`, and the names that scripts import from it.

The command does not use the pool of devices for threads: it has leases, a database and signals.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterable

from stoker.compat.simple_gpu_scheduler.main import main

__all__ = ["GPU", "GPUManager", "main", "read_commands_and_run", "run_command_with_gpu"]


class GPUManager:
    """A pool of device IDs; the ID that was released last is given out first."""

    def __init__(self, available_gpus: Iterable[str | int]) -> None:
        self.available_gpus = list(available_gpus)
        self._changed = threading.Condition()

    def get_gpu(self) -> GPU:
        """Take a free device; blocks until there is one."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self.available_gpus))
            return GPU(self.available_gpus.pop(), self)

    def release_gpu(self, gpu: GPU) -> None:
        with self._changed:
            self.available_gpus.append(gpu.nr)
            self._changed.notify()


class GPU:
    """A device taken from a pool; `str(gpu)` is the value for CUDA_VISIBLE_DEVICES."""

    def __init__(self, nr: str | int, manager: GPUManager) -> None:
        self.nr = nr
        self.manager = manager

    def release(self) -> None:
        self.manager.release_gpu(self)

    def __str__(self) -> str:
        return str(self.nr)


def run_command_with_gpu(command: str, gpu: GPU) -> threading.Thread:
    """Run a shell command in a new thread, which releases the device at its end; returns it."""
    print(f"Processing command `{command}` on gpu {gpu}", flush=True)

    def work() -> None:
        try:
            subprocess.run(
                ["/bin/sh", "-c", command],
                stdin=subprocess.DEVNULL,
                check=False,
                env={**os.environ, "CUDA_VISIBLE_DEVICES": str(gpu)},
            )
        finally:
            gpu.release()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def read_commands_and_run(gpu_manager: GPUManager) -> None:
    """Run each line of stdin as soon as a device is free; returns when all have finished."""
    threads = [run_command_with_gpu(line.rstrip(), gpu_manager.get_gpu()) for line in sys.stdin]
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
