"""The interface between the benchmarks and a tool."""

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
    """Runs a file of command lines on a number of slots and waits for the end."""

    name: ClassVar[str]
    # What the tool keeps of a job: a tool that keeps nothing has less to do.
    keeps: ClassVar[str]
    forms: ClassVar[tuple[Form, ...]] = FORMS
    # Slow tools get only this many rounds of jobs, in the first repeat only.
    rounds: ClassVar[int | None] = None

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    @abstractmethod
    def available(self) -> str | None:
        """None if the tool is available, otherwise the reason."""

    @abstractmethod
    def run(self, batch: Batch) -> int:
        """Run the batch to its end; return the time of the typed command (monotonic ns).

        Daemons that a user would have running are started before that time. Raises ToolError.
        """

    def version(self) -> str:
        return ""

    def jobs_for(self, wanted: int, slots: int) -> int:
        """Number of jobs for this tool."""
        return wanted if self.rounds is None else min(wanted, self.rounds * slots)


def missing_program(*names: str) -> str | None:
    """The reason if a program is not on the PATH."""
    for name in names:
        if program(name) is None:
            return f"`{name}` is not installed"
    return None


def program(name: str) -> str | None:
    """Path of a program, from the PATH or the peers' virtual environment."""
    return shutil.which(name) or shutil.which(name, path=str(peers_folder() / "bin"))


def peers_python() -> Path:
    return peers_folder() / "bin" / "python"


def missing_package(distribution: str) -> str | None:
    """The reason if a Python package is not in the peers' virtual environment."""
    if not peers_python().exists():
        return "no virtual environment with peers: run bench/setup.sh or set PEERS"
    if package_version(distribution) == "":
        return f"Python package `{distribution}` is not in the virtual environment of the peers"
    return None


@cache
def package_version(distribution: str) -> str:
    code = f"from importlib.metadata import version; print(version({distribution!r}))"
    return answer([peers_python(), "-c", code]) or ""


def wait_for_stamps(batch: Batch) -> None:
    """Wait until every job wrote its stamp, for tools without a cheap wait command.

    This costs one stat call every 5 ms. The figures come from the stamps, so the delay of this loop
    does not affect them.
    """
    deadline = time.monotonic() + batch.timeout
    while batch.ended() < batch.count:
        if time.monotonic() > deadline:
            raise ToolError(f"{batch.ended()} of {batch.count} jobs after {batch.timeout:.0f} s")
        time.sleep(0.005)
