"""Several schedulers on the same cards, for a while; `python -m tests.gpus.stress` for longer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gpus.stress import Stress


@pytest.fixture
def stress(tmp_path: Path, nvml_library: Path) -> Iterator[Stress]:
    made = Stress(tmp_path, nvml_library)
    yield made
    made.close()


@pytest.mark.slow
def test_two_daemons_and_a_run_never_double_book_or_over_commit_a_card(stress: Stress) -> None:
    assert stress.work(600) == (600, 0)


@pytest.mark.slow
def test_without_leases_the_same_jobs_would_collide(stress: Stress) -> None:
    """That the jobs notice at all."""
    stress.longest = 100_000
    starts, violations = stress.work(150, STOKER_LEASES="0")
    assert starts == 150 and violations > 0
