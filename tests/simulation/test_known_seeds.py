"""Seeds that found a defect once, with a description of what happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.simulator import run

_SEEDS = {
    4: "the disk was full at a commit, then a cancel: the job had run and had no attempt",
    9: "the job ran again although its first run was lost and it was not restartable",
    24: "the job was cancelled while it was alive: the daemon had died between order and commit",
    33: "an attempt id was used twice",
    35: "the job stayed in `starting` forever",
    44: "the wall clock was set back: a backoff of seconds took a day",
    88: "an attempt id was used twice",
    106: "the attempt id of a removed job was used again",
    107: "the time limit of an orphan was not enforced",
    124: "a job was due while the disk was full: the daemon looped without a pause",
    237: "a job was due while the disk was full: the daemon looped without a pause",
    584: "the disk was full at a commit, then the clock jumped: the job ran one time too many",
}


@pytest.mark.parametrize("seed", _SEEDS)
def test_invariants_hold_for_seeds_that_failed_before(seed: int, tmp_path: Path) -> None:
    run(seed, str(tmp_path))
