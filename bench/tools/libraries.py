"""Python libraries that run tasks on a worker.

The interpreter of the peers runs the driver script, so that the harness does not need the
libraries.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import ClassVar

from bench import process
from bench.tools.base import Tool, missing_package, package_version, peers_python
from bench.workload import Batch

DRIVER = Path(__file__).parent.parent / "drivers" / "run_lines.py"


class Library(Tool):
    distribution: ClassVar[str]

    def available(self) -> str | None:
        return missing_package(self.distribution)

    def version(self) -> str:
        return package_version(self.distribution)

    def run(self, batch: Batch) -> int:
        command_at_ns = time.monotonic_ns()
        process.run(
            [peers_python(), DRIVER, self.name, batch.lines, str(batch.slots), batch.form],
            batch.environ,
            folder=batch.folder,
            timeout=batch.timeout,
        )
        return command_at_ns


class HyperQueue(Library):
    name = "hyperqueue"
    keeps = "output, exit code"
    distribution = "hyperqueue"


class Dask(Library):
    name = "dask"
    keeps = "exit code, in memory"
    distribution = "distributed"


class Joblib(Library):
    name = "joblib"
    keeps = "exit code, in memory"
    distribution = "joblib"
