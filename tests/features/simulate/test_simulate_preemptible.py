"""`stoker simulate` with preemptible jobs and several users."""

from __future__ import annotations

import json

from tests.cli.helpers import Terminal
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


def test_waits_of_users_are_shown_apart_and_users_get_equal_parts(lab: Lab) -> None:
    rows = [f"0,100,1,{'many' if number < 8 else 'few'}" for number in range(10)]
    (lab.folder / "trace.csv").write_text("\n".join(["submit_s,duration_s,gpus,group", *rows]))
    words = ("simulate", "trace.csv", "--gpus", "2", "--policy", "learned")
    records = json.loads(lab.ok(*words, "--json"))["simulations"]
    # The user with few jobs has one of the two GPUs until they are done.
    assert [(one["user"], one["jobs"], one["wait_mean_s"]) for one in records] == [
        ("few", 2, 50.0),
        ("many", 8, 237.5),
    ]
    assert lab.ok(*words).splitlines()[0].split()[2:4] == ["USER", "COUNT"]


def test_jobs_can_be_divided_among_users(lab: Lab) -> None:
    rows = ["0,1,1"] * 600
    (lab.folder / "trace.csv").write_text("\n".join(["submit_s,duration_s,gpus", *rows]))
    words = ("simulate", "trace.csv", "--gpus", "4", "--policy", "learned", "--json")
    records = json.loads(lab.ok(*words, "--users", "3"))["simulations"]
    counts = [one["jobs"] for one in records]
    assert [one["user"] for one in records] == ["user1", "user2", "user3"]
    assert sum(counts) == 600 and counts == sorted(counts, reverse=True)
    done = lab.run(*words, "--users", "0")
    assert (done.returncode, "`0` is not a number of users" in done.stdout) == (2, True)


def test_interrupted_simulation_shows_what_is_complete(lab: Lab) -> None:
    trace = lab.folder / "overload.csv"
    lines = [f"{n},{3600 + n % 977},{1 + n % 3}" for n in range(20_000)]
    trace.write_text("\n".join(["submit_s,duration_s,gpus", *lines]))
    words = ("--gpus", "4", "--users", "12", "--policy", "fifo,oracle")
    terminal = Terminal(lab, "simulate", str(trace), *words, columns=200)
    terminal.read_until("simulating 20000 jobs on 4 GPUs, oracle ...")
    terminal.interrupt()
    assert terminal.close() == 130
    assert "interrupted; only simulations that were complete are shown" in terminal.text
    assert "4     fifo    user12" in terminal.text and "4     oracle" not in terminal.text
