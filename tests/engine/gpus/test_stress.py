"""Several schedulers on the same GPUs; a longer run: `python -m tests.engine.gpus.stress`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.gpus.stress import Stress
from tests.lab import wait_until


@pytest.fixture
def stress(tmp_path: Path, nvml_library: Path) -> Iterator[Stress]:
    made = Stress(tmp_path, nvml_library)
    yield made
    made.close()


def test_two_daemons_and_a_run_never_overcommit_a_gpu(stress: Stress) -> None:
    assert stress.work(600) == (600, 0)


def test_job_detects_another_job_on_its_gpu(stress: Stress) -> None:
    """The check on which the test above relies."""
    first = stress.start_job(gpu=1, seconds=60)
    try:
        wait_until(lambda: stress.counted() == (1, 0))
        stress.start_job(gpu=2, seconds=0).wait()
        assert stress.counted() == (2, 0)
        stress.start_job(gpu=1, seconds=0).wait()
        assert stress.counted() == (3, 1)
    finally:
        first.kill()
        first.wait()
