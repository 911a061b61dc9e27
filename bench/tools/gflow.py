"""gflow: a daemon and `gbatch`. Without GPUs, `--max-concurrent` of a group limits the slots.

It has two executors. "tmux", its default, opens one session per job with a pause of a second
between them, and types the command into it. "process" starts a shell and checks for results every
ten seconds. Both schedule on a 100 ms timer. The figures show these timers, not the speed of the
code.
"""

from __future__ import annotations

import contextlib
import csv
import http.client
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from bench import process
from bench.process import Command, ToolError, answer
from bench.tools.base import Tool, missing_program, program, wait_for_stamps
from bench.workload import Batch, Form

CONFIG = """[daemon]
host = "127.0.0.1"
port = {port}

[executor]
type = "{executor}"
"""
# Sessions must not be login shells, which reset PATH and hide the `gcancel` of the job.
TMUX_CONFIG = "set -g default-command /bin/sh\n"


def gflow_program(name: str) -> str:
    return program(name) or name


@contextlib.contextmanager
def gflow_daemon(folder: Path, environ: dict[str, str], executor: str) -> Iterator[dict[str, str]]:
    """A private gflow daemon and tmux server; yields the environment for its clients."""
    port = free_port()
    (folder / "config" / "gflow").mkdir(parents=True)
    (folder / "tmux").mkdir()
    (folder / ".tmux.conf").write_text(TMUX_CONFIG)
    config = CONFIG.format(port=port, executor=executor)
    (folder / "config" / "gflow" / "gflow.toml").write_text(config)
    environ = {
        **environ,
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_DATA_HOME": str(folder / "data"),
        "XDG_RUNTIME_DIR": str(folder / "tmux"),
        "TMUX_TMPDIR": str(folder / "tmux"),
    }
    daemon = process.start(
        [gflow_program("gflowd")], environ, folder=folder, output=folder / "gflowd.out"
    )
    try:
        wait_for_answer(port)
        yield environ
    finally:
        answer(["tmux", "kill-server"], environ)
        process.end(daemon)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for_answer(port: int, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.02)
    raise ToolError(f"gflowd did not answer within {seconds:.0f} s")


class Gflow(Tool):
    keeps = "output, state"
    # A round takes seconds in either form.
    forms: ClassVar[tuple[Form, ...]] = ("shell",)
    executor: ClassVar[str]

    def available(self) -> str | None:
        return missing_program("gflowd", "gbatch", "tmux")

    def version(self) -> str:
        words = (answer([gflow_program("gbatch"), "-V"]) or "").split()
        return words[1] if len(words) > 1 else ""

    def run(self, batch: Batch) -> int:
        table = batch.folder / "lines.csv"
        with table.open("w", newline="") as out:
            rows = csv.writer(out)
            rows.writerow(["line"])
            rows.writerows([line] for line in batch.lines.read_text().splitlines())
        # gbatch quotes each word, so a whole line must be passed to `eval`.
        command: Command = [
            *(gflow_program("gbatch"), "--param-file", table, "--auto-close"),
            *("--max-concurrent", str(batch.slots), "eval", "{line}"),
        ]
        with gflow_daemon(batch.folder, batch.environ, self.executor) as environ:
            command_at_ns = time.monotonic_ns()
            process.run(command, environ, folder=batch.folder)
            wait_for_stamps(batch)
        return command_at_ns


class GflowTmux(Gflow):
    name = "gflow-tmux"
    executor = "tmux"
    rounds = 4


class GflowProcess(Gflow):
    name = "gflow-process"
    executor = "process"
    rounds = 3
