"""Stoker itself, through its commands: in the foreground and with the daemon."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench import process
from bench.lab import drop_large_files
from bench.process import Command, ToolError, answer
from bench.tools.base import Tool
from bench.tools.gpu_schedulers import device_list
from bench.workload import Batch


def stoker_command() -> list[str]:
    """The command line of Stoker; the variable STOKER overrides it."""
    named = os.environ.get("STOKER")
    return shlex.split(named) if named else [sys.executable, "-m", "stoker"]


def stoker_interpreter() -> str:
    """The Python interpreter of Stoker, to measure its bare start."""
    script = shutil.which(stoker_command()[0]) or stoker_command()[0]
    with contextlib.suppress(OSError), Path(script).open("rb") as opened:
        first = opened.readline()
        if first.startswith(b"#!") and b"python" in first:
            return first[2:].decode().strip()
    return script if "python" in Path(script).name else sys.executable


def stoker_missing() -> str | None:
    if answer([*stoker_command(), "--help"]) is None:
        return f"`{shlex.join(stoker_command())}` cannot be run; set STOKER to another command"
    return None


def simulated(environ: dict[str, str], folder: Path, slots: int) -> dict[str, str]:
    """An environment with its own state folder and `slots` simulated GPUs."""
    return {**environ, "STOKER_STATE_DIR": str(folder / "s"), "STOKER_DEVICES": str(slots)}


@dataclass(frozen=True)
class Daemon:
    """A running daemon with a private state folder."""

    folder: Path
    environ: dict[str, str]

    def call(self, *words: str, stdin: Path | None = None, timeout: float = 600.0) -> None:
        command = [*stoker_command(), *words]
        process.run(command, self.environ, folder=self.folder, stdin=stdin, timeout=timeout)

    def status(self) -> dict[str, int]:
        """The PIDs in `daemon status --json`."""
        text = answer([*stoker_command(), "daemon", "status", "--json"], self.environ)
        if text is None:
            raise ToolError("`stoker daemon status --json` failed")
        found = json.loads(text)
        return {key: found[key] for key in ("pid", "runner_pid") if found.get(key)}


@contextlib.contextmanager
def stoker_daemon(folder: Path, environ: dict[str, str], slots: int) -> Iterator[Daemon]:
    """Start a daemon; at the end stop it, wait for its exit, and delete its database."""
    daemon = Daemon(folder, simulated(environ, folder, slots))
    daemon.call("daemon", "start", timeout=30)
    pids = list(daemon.status().values())
    try:
        yield daemon
    finally:
        with contextlib.suppress(ToolError):
            daemon.call("daemon", "stop", timeout=60)
        wait_for_exit(pids)
        drop_large_files(folder)


def wait_for_exit(pids: list[int], seconds: float = 10.0) -> None:
    """Wait until processes ended, then kill them: the next run needs an idle machine."""
    deadline = time.monotonic() + seconds
    for pid in pids:
        while process.memory_kib(pid) is not None:
            if time.monotonic() > deadline:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                break
            time.sleep(0.01)


class StokerRun(Tool):
    """`stoker run` in the foreground."""

    name = "stoker-run"
    keeps = "output, exit code, times"

    def available(self) -> str | None:
        return stoker_missing()

    def version(self) -> str:
        return (answer([*stoker_command(), "--version"]) or "").split(" ")[-1]

    def run(self, batch: Batch) -> int:
        command: Command = [
            *(*stoker_command(), "run", "--devices", device_list(batch.slots)),
            *("--log-dir", batch.folder / "logs", batch.lines),
        ]
        command_at_ns = time.monotonic_ns()
        process.run(
            command,
            simulated(batch.environ, batch.folder, batch.slots),
            folder=batch.folder,
            timeout=batch.timeout,
        )
        return command_at_ns


class StokerDaemon(StokerRun):
    """`stoker submit` with a running daemon."""

    name = "stoker-daemon"

    def run(self, batch: Batch) -> int:
        with stoker_daemon(batch.folder, batch.environ, batch.slots) as daemon:
            command_at_ns = time.monotonic_ns()
            daemon.call("submit", "--file", str(batch.lines), "-q", timeout=batch.timeout)
            daemon.call("wait", "--all", timeout=batch.timeout)
        return command_at_ns
