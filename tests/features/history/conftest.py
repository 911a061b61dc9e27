"""Labs and hosts with a fast usage recorder, and a function that starts one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stoker.engine.supervisor import locks
from stoker.features.history.usage_recorder import TRACER_LOCK
from tests.fake_nvml import build
from tests.lab import Lab


class Recorder:
    """A usage recorder. The daemon may have one, too; the one that holds the lock works."""

    def __init__(self, lab: Lab) -> None:
        self.folder = str(lab.state_dir)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "stoker.features.history.usage_recorder"],
            env=lab.env,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def is_at_work(self) -> bool:
        return locks.holder(self.folder, TRACER_LOCK) == self.process.pid

    def hang_up(self) -> int:
        """Close its stdin and return its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait()

    def errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stderr):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def record() -> Iterator[Callable[[Lab], Recorder]]:
    made: list[Recorder] = []

    def start(lab: Lab) -> Recorder:
        made.append(Recorder(lab))
        return made[-1]

    yield start
    for recorder in made:
        recorder.close()


@pytest.fixture
def quick_lab(new_lab: Callable[..., Lab]) -> Lab:
    return new_lab(devices=2, STOKER_TRACE_SECONDS="0.02")


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.getbasetemp())
