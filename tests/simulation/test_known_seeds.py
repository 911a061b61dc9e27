"""Seeds that once found a bug, kept. The words say what was seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.simulator import run

_SEEDS = {
    4: "the disk was full at a commit, then a cancel: the job had run and had no attempt",
    9: "the job ran again although its first run was lost and it was not restartable",
    24: "the job was cancelled while it lived: the daemon had died between order and commit",
    33: "an attempt id was given out twice",
    35: "the job was starting for ever",
    44: "the wall clock was set back: a back-off of seconds took a day",
    88: "an attempt id was given out twice",
    106: "the attempt id of a removed job was given out again",
    107: "nobody kept the time limit of an orphan",
    124: "a job was due while the disk was full: the daemon turned without a pause",
    237: "a job was due while the disk was full: the daemon turned without a pause",
    584: "the disk was full at a commit, then the clock jumped: the job ran once too often",
}


@pytest.mark.parametrize("seed", _SEEDS)
def test_invariants_hold_for_seeds_that_failed_before(seed: int, tmp_path: Path) -> None:
    run(seed, str(tmp_path))
