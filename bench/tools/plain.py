"""Programs that read lines and keep slots full, without a queue or a daemon."""

from __future__ import annotations

import time

from bench import process
from bench.process import Command, answer
from bench.tools.base import Tool, missing_program
from bench.workload import Batch


class Reference(Tool):
    name = "reference"
    keeps = "nothing"

    def available(self) -> str | None:
        return None

    def run(self, batch: Batch) -> int:
        command_at_ns = time.monotonic_ns()
        command: Command = [self.lab.reference, str(batch.slots), batch.lines]
        process.run(command, batch.environ, folder=batch.folder, timeout=batch.timeout)
        return command_at_ns


class Xargs(Tool):
    name = "xargs"
    keeps = "nothing"

    def available(self) -> str | None:
        return missing_program("xargs")

    def version(self) -> str:
        return (answer(["xargs", "--version"]) or "").split("\n")[0].split()[-1]

    def run(self, batch: Batch) -> int:
        command_at_ns = time.monotonic_ns()
        process.run(
            [
                *("xargs", "-d", "\\n", "-n", "1", "-P", str(batch.slots)),
                *("--process-slot-var=CUDA_VISIBLE_DEVICES", "sh", "-c"),
            ],
            batch.environ,
            folder=batch.folder,
            stdin=batch.lines,
            timeout=batch.timeout,
        )
        return command_at_ns


class Parallel(Tool):
    name = "parallel"
    keeps = "nothing"

    def available(self) -> str | None:
        if reason := missing_program("parallel"):
            return reason
        # moreutils has another program of the same name.
        return None if self.version() else "`parallel` is not GNU parallel"

    def version(self) -> str:
        first = (answer(["parallel", "--version"]) or "").split("\n")[0]
        return first.split()[-1] if first.startswith("GNU parallel") else ""

    def options(self, batch: Batch) -> list[str]:
        return []

    def run(self, batch: Batch) -> int:
        command_at_ns = time.monotonic_ns()
        process.run(
            ["parallel", "-j", str(batch.slots), *self.options(batch)],
            batch.environ,
            folder=batch.folder,
            stdin=batch.lines,
            timeout=batch.timeout,
        )
        return command_at_ns


class ParallelRecorded(Parallel):
    name = "parallel-joblog"
    keeps = "output, exit code, times"

    def options(self, batch: Batch) -> list[str]:
        return ["--joblog", str(batch.folder / "joblog"), "--results", str(batch.folder / "out")]
