"""Crashes at any point: no trial is lost or duplicated."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

import stoker
from tests.lab import Lab
from tests.python import job_functions
from tests.python.conftest import here as here


@pytest.mark.parametrize(
    "point", ["sweep.before_commit:1", "sweep.before_commit:2", "sweep.after_commit:1"]
)
def test_sweep_survives_a_crash_of_its_submitter(new_lab: Callable[..., Lab], point: str) -> None:
    lab = new_lab(devices=2)
    words = ("sweep", "echo {x}", "x=range(7)", "--name", "s", "--json")
    died = lab.run(*words, STOKER_FAILPOINT=point)
    assert died.returncode == -9
    again = json.loads(lab.ok(*words))
    lab.wait()
    shown = json.loads(lab.ok("sweep", "show", "s", "--json"))
    assert shown["trials"] == {"done": 7}
    assert len(lab.states()) == 7, again


@pytest.mark.parametrize("point", ["driver.after_ask", "sweep.before_commit", "sweep.after_commit"])
@pytest.mark.parametrize("nth", [1, 3])
def test_search_continues_after_its_driver_died(here: Lab, point: str, nth: int) -> None:
    once = here.folder / "once"
    once.touch()
    here.env |= {"STOKER_FAILPOINT": f"{point}:{nth}", "STOKER_FAILPOINT_ONCE": str(once)}
    here.ok("daemon", "start")  # it passes the failpoint to its driver
    swept = stoker.sweep(
        job_functions.bowl, {"x": "interval(0, 1)", "y": "interval(0, 1)"}, method="tpe",
        trials=6, seed=1, metric="loss", max_parallel=2,
    )  # fmt: skip
    assert swept.wait()
    assert not once.exists(), f"{point} was never passed {nth} times"
    assert swept.counts == {"done": 6}
    assert len({(row["x"], row["y"]) for row in swept.results()}) == 6
