"""Trials of stopped sweeps, and early stopping."""

from __future__ import annotations

import json

from tests.features.sweeps.control.test_sweep import sweep, trials
from tests.lab import Lab

# Trials 1 and 2 finish; trial 3 reports bad values and never checks whether to stop.
IGNORES_STOP = (
    "for i in 1 2 3 4 5; do echo stoker: loss={x} step=$i; done; "
    "test {x} -lt 50 || while :; do sleep 0.05; done"
)
EARLY = ("--metric", "loss", "--max-parallel", "1", "--gpus", "0", "x=0,1,100")


def test_trials_of_a_stopped_sweep_show_the_reason(lab: Lab) -> None:
    made = sweep(lab, "-n", "s", "--gpus", "2", "while :; do sleep 0.05; done; : {x}", "x=1,2")
    lab.wait_until(lambda: trials(lab, "s") == {"running": 1, "queued": 1})
    lab.ok("sweep", "stop", "s", "--kill")
    lab.wait_until(lambda: trials(lab, "s") == {"cancelled": 2})
    for job in made["jobs"]:
        assert lab.job(job)["cause"] == "sweep"
        assert "sweep stopped" in lab.ok("show", str(job))
        assert "no exit record" not in lab.ok("show", str(job))


def test_trial_that_ignores_the_stop_request_is_killed_after_kill_after(lab: Lab) -> None:
    made = sweep(lab, "-n", "s", IGNORES_STOP, "--early-stop",
                 "median,min_trials=2,after_step=1,kill_after=0", *EARLY)  # fmt: skip
    lab.wait_until(lambda: trials(lab, "s") == {"done": 2, "cancelled": 1})
    assert lab.job(made["jobs"][2])["cause"] == "stopped_early"
    rows = json.loads(lab.ok("results", "s", "--json"))["rows"]
    assert [row["stopped"] for row in rows] == [None, None, "early"]
    assert json.loads(lab.ok("sweep", "resume", "s", "--json"))["jobs"] == []


def test_trial_that_ignores_the_stop_request_causes_a_warning(lab: Lab) -> None:
    output = lab.run("sweep", "-n", "s", IGNORES_STOP, "--early-stop",
                   "median,min_trials=2,after_step=1", *EARLY).stderr  # fmt: skip
    assert "--early-stop median,kill_after=60" in output
    lab.wait_until(lambda: "asked to stop early still runs" in lab.ok("sweep", "show", "s"))
    assert json.loads(lab.ok("sweep", "show", "s", "--json"))["asked_to_stop"] == [3]
    lab.ok("sweep", "stop", "s", "--kill")
