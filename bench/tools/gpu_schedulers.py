"""Small Python GPU schedulers that read lines and run one job per GPU."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from bench import process
from bench.tools.base import Tool, missing_package, missing_program, package_version, program
from bench.workload import Batch


def device_list(slots: int) -> str:
    return ",".join(str(number) for number in range(slots))


class SimpleGpuScheduler(Tool):
    name = "simple-gpu-scheduler"
    keeps = "nothing"

    def available(self) -> str | None:
        return missing_package("simple-gpu-scheduler") or missing_program("simple_gpu_scheduler")

    def version(self) -> str:
        return package_version("simple-gpu-scheduler")

    def run(self, batch: Batch) -> int:
        command = [program("simple_gpu_scheduler") or "", "--gpus", device_list(batch.slots)]
        command_at_ns = time.monotonic_ns()
        process.run(
            command,
            batch.environ,
            folder=batch.folder,
            stdin=batch.lines,
            timeout=batch.timeout,
        )
        return command_at_ns


class GpuHog(Tool):
    """Its workers exit five seconds after the queue is empty; the stamps end before that."""

    name = "gpu-hog"
    keeps = "output, success or failure"

    def script(self) -> Path | None:
        named = os.environ.get("HOG")
        if not named:
            return None
        path = Path(named)
        return path / "main.py" if path.is_dir() else path

    def available(self) -> str | None:
        script = self.script()
        if script is None:
            return "not packaged: set HOG to a checkout of gokul-uf/gpu-hog"
        return None if script.is_file() else f"HOG: {script} does not exist"

    def run(self, batch: Batch) -> int:
        command_at_ns = time.monotonic_ns()
        process.run(
            [
                *(sys.executable, self.script() or ""),
                *("--job_file", batch.lines, "--gpus", device_list(batch.slots)),
                *("--output_dir", batch.folder / "hog"),
            ],
            batch.environ,
            folder=batch.folder,
            timeout=batch.timeout,
        )
        return command_at_ns
