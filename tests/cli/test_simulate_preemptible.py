"""`stoker simulate` with preemptible jobs."""

from __future__ import annotations

import json

from tests.lab import Lab

TRACE = "submit_s,duration_s,gpus,preemptible\n0,100,1,1\n30,10,1,0\n"


def test_waits_of_preemptible_jobs_are_shown_apart(lab: Lab) -> None:
    (lab.folder / "trace.csv").write_text(TRACE)
    words = ("simulate", "trace.csv", "--gpus", "1", "--policy", "learned")
    lines = lab.ok(*words).splitlines()
    assert [line.split()[2:4] for line in lines[1:]] == [["normal", "0.0s"], ["preemptible", "10s"]]
    records = json.loads(lab.ok(*words, "--json"))["simulations"]
    assert [(one["preemptible"], one["preemptions"]) for one in records] == [(False, 1), (True, 1)]


def test_share_of_preemptible_jobs_can_be_given(lab: Lab) -> None:
    (lab.folder / "trace.csv").write_text(TRACE.replace(",preemptible", ",other"))
    words = ("simulate", "trace.csv", "--gpus", "1", "--policy", "learned", "--json")
    everything = json.loads(lab.ok(*words, "--preemptible", "1"))["simulations"]
    assert [one["jobs"] for one in everything] == [0, 2]
    [one] = json.loads(lab.ok(*words, "--preemptible", "0"))["simulations"]
    assert one["preemptible"] is None
    done = lab.run(*words[:-1], "--preemptible", "7")
    assert (done.returncode, "`7` is not a share from 0 to 1" in done.stderr) == (2, True)
