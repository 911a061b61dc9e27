"""What Python programs import from simple_gpu_scheduler: devices that are handed out to threads.

The command itself does not use this: it has leases, records and signals (simple_gpu_scheduler_run).
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterable


class GPUManager:
    """Device ids, each for one user at a time; the last one that came back goes out first."""

    def __init__(self, available_gpus: Iterable[str | int]) -> None:
        self.available_gpus = list(available_gpus)
        self._changed = threading.Condition()

    def get_gpu(self) -> GPU:
        """A device that is free; waits until there is one."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self.available_gpus))
            return GPU(self.available_gpus.pop(), self)

    def release_gpu(self, gpu: GPU) -> None:
        with self._changed:
            self.available_gpus.append(gpu.nr)
            self._changed.notify()


class GPU:
    """A device that somebody was given; `str` of it is what CUDA_VISIBLE_DEVICES takes."""

    def __init__(self, nr: str | int, manager: GPUManager) -> None:
        self.nr = nr
        self.manager = manager

    def release(self) -> None:
        self.manager.release_gpu(self)

    def __str__(self) -> str:
        return str(self.nr)


def run_command_with_gpu(command: str, gpu: GPU) -> threading.Thread:
    """Run a shell command on this device, which is released at its end; a thread to be joined."""
    print(f"Processing command `{command}` on gpu {gpu}", flush=True)

    def work() -> None:
        try:
            subprocess.run(
                ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, check=False,
                env={**os.environ, "CUDA_VISIBLE_DEVICES": str(gpu)},
            )  # fmt: skip
        finally:
            gpu.release()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def read_commands_and_run(gpu_manager: GPUManager) -> None:
    """Run each line of stdin as soon as a device is free; returns when all have ended."""
    threads = [run_command_with_gpu(line.rstrip(), gpu_manager.get_gpu()) for line in sys.stdin]
    for thread in threads:
        thread.join()
