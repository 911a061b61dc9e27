"""What the benchmarks need to know of a tool."""

from __future__ import annotations

import shutil
import time
from abc import ABC, abstractmethod
from functools import cache
from pathlib import Path
from typing import ClassVar

from bench.lab import Lab, peers_folder
from bench.process import ToolError, answer
from bench.workload import FORMS, Batch, Form


class Tool(ABC):
    """How to run a file of command lines on some slots and wait to the end."""

    name: ClassVar[str]
    # What is left of a job afterwards: a tool that keeps nothing has less to do.
    keeps: ClassVar[str]
    forms: ClassVar[tuple[Form, ...]] = FORMS
    # Tools whose slots stay empty for long get this many rounds of jobs, in the first repeat only.
    rounds: ClassVar[int | None] = None

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    @abstractmethod
    def available(self) -> str | None:
        """None when the tool can be run here, else the reason why not."""

    @abstractmethod
    def run(self, batch: Batch) -> int:
        """Run the batch to its end; returns when the command was typed (monotonic ns).

        Daemons that a user would have running already are started before that moment.
        """

    def version(self) -> str:
        return ""

    def jobs_for(self, wanted: int, slots: int) -> int:
        """How many jobs this tool is given."""
        return wanted if self.rounds is None else min(wanted, self.rounds * slots)


def missing_program(*names: str) -> str | None:
    """A reason when a program is not on the search path."""
    for name in names:
        if program(name) is None:
            return f"`{name}` is not installed"
    return None


def program(name: str) -> str | None:
    """Path of a program, from the search path or the peers' virtual environment."""
    return shutil.which(name) or shutil.which(name, path=str(peers_folder() / "bin"))


def peers_python() -> Path:
    return peers_folder() / "bin" / "python"


def missing_package(distribution: str) -> str | None:
    """A reason when a Python package is not in the peers' virtual environment."""
    if not peers_python().exists():
        return "no virtual environment for peers: run bench/setup.sh or set PEERS"
    if package_version(distribution) == "":
        return f"Python package `{distribution}` is not installed among the peers"
    return None


@cache
def package_version(distribution: str) -> str:
    code = f"from importlib.metadata import version; print(version({distribution!r}))"
    return answer([peers_python(), "-c", code]) or ""


def wait_for_stamps(batch: Batch) -> None:
    """Wait until every job has left its stamp, for tools that offer no cheap wait of their own.

    Looking costs one stat call every 5 ms; the figures come from the stamps, not from when the
    last one was noticed.
    """
    deadline = time.monotonic() + batch.timeout
    while batch.ended() < batch.count:
        if time.monotonic() > deadline:
            raise ToolError(f"{batch.ended()} of {batch.count} jobs after {batch.timeout:.0f} s")
        time.sleep(0.005)
