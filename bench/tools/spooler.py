"""task-spooler: the first `tsp` starts the server; one `tsp` call per job."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from bench import process
from bench.process import ToolError, answer
from bench.tools.base import Tool, missing_program, wait_for_stamps
from bench.workload import Batch

# The loop that a user would write; for plain lines the words are arguments of tsp.
FEED = {
    "shell": 'while IFS= read -r line; do tsp sh -c "$line"; done',
    "plain": "while IFS= read -r line; do tsp $line; done",
}


@contextlib.contextmanager
def spooler(folder: Path, environ: dict[str, str], slots: int) -> Iterator[dict[str, str]]:
    """An environment with a private task-spooler server, which is killed with its jobs."""
    environ = {**environ, "TS_SOCKET": str(folder / "tsp"), "TS_SLOTS": str(slots)}
    environ["TS_MAXFINISHED"] = "100000"
    try:
        yield environ
    finally:
        for ending in ("-k", "-K"):  # kill the running job first: it would outlive its server
            with contextlib.suppress(ToolError):
                process.run(["tsp", ending], environ, folder=folder, timeout=10)


class TaskSpooler(Tool):
    name = "task-spooler"
    keeps = "output; exit code, in memory"

    def available(self) -> str | None:
        return missing_program("tsp")

    def version(self) -> str:
        words = (answer(["tsp", "-V"]) or "").split()
        return next((word.lstrip("v") for word in words if word.startswith("v")), "")

    def run(self, batch: Batch) -> int:
        with spooler(batch.folder, batch.environ, batch.slots) as environ:
            command_at_ns = time.monotonic_ns()
            process.run(
                ["sh", "-c", FEED[batch.form]],
                environ,
                folder=batch.folder,
                stdin=batch.lines,
                timeout=batch.timeout,
            )
            wait_for_stamps(batch)
        return command_at_ns
