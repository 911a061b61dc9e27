"""Preemptible jobs use idle GPUs and give way to other jobs."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.helpers import Gate
from tests.lab import Lab, wait_until


@pytest.fixture
def lab(new_lab: Callable[..., Lab]) -> Lab:
    """A lab with one simulated GPU."""
    return new_lab(devices=1)


def trap(signal: str, code: int) -> str:
    """A program that saves its work when it gets a signal, and finishes in its second attempt."""
    return (
        f"trap 'echo saved; touch $STOKER_CHECKPOINT_DIR/saved; exit {code}' {signal};"
        " if [ -e $STOKER_CHECKPOINT_DIR/saved ]; then echo finished; exit 0; fi;"
        " echo started; while :; do sleep 0.02; done"
    )


def start(lab: Lab, *args: str) -> int:
    job = lab.submit(*args)
    wait_until(lambda: lab.log(job) == "started\n", what="the job to start")
    return job


@pytest.mark.parametrize("code", [0, 1, 75])
def test_preemptible_job_gives_way_and_runs_again_with_its_checkpoints(lab: Lab, code: int) -> None:
    first = start(lab, "--preemptible", trap("TERM", code))
    gate = Gate(lab.folder)
    second = lab.submit(gate.wait)
    gate.wait_for()
    gave_way = lab.job(first)
    assert (gave_way["state"], gave_way["preemptions"], gave_way["attempts"]) == ("queued", 1, 1)
    assert gave_way["history"][0]["cause"] == "preempted"
    assert gave_way["history"][0]["result"].startswith(f"gave way to job {second}")
    lab.wait_until(lambda: lab.state(second) == "running")
    why = lab.ok("why", str(first))
    assert f"it gave way to job {second} at " in why
    assert "preemptible jobs start when no other job waits for the GPU" in why
    assert f"[gave way to job {second}]" in lab.ok("ls")
    gate.open()
    assert lab.wait(first, second) == 0
    done = lab.job(first)
    assert [one["cause"] for one in done["history"]] == ["preempted", "exit"]
    assert lab.ok("log", f"{first}", "--attempt", "1").endswith("saved\n")
    assert lab.log(first) == "finished\n"
    assert "preemptible yes, gave way 1 time" in lab.ok("show", str(first))
    assert f"asked_to_give_way to job {second}" in lab.ok("show", str(first))


def test_job_gets_the_signal_of_its_own_choice(lab: Lab) -> None:
    script = lab.folder / "train.sh"
    script.write_text(
        "trap 'echo saved; touch $STOKER_CHECKPOINT_DIR/saved; exit 75' USR1\n"
        "trap 'echo terminated' TERM\n"
        "[ -e $STOKER_CHECKPOINT_DIR/saved ] && exit 0\n"
        "echo started\nwhile :; do sleep 0.02; done\n"
    )
    first = start(lab, "--preemptible", "--signal", "USR1@60", "sh", str(script))
    assert lab.wait(lab.submit("true")) == 0
    assert lab.wait(first) == 0
    assert lab.ok("log", str(first), "--attempt", "1") == "started\nsaved\n"


def test_job_that_ignores_the_request_is_killed_after_its_grace_period(lab: Lab) -> None:
    command = "test $STOKER_ATTEMPT = 2 && exit 0; trap '' TERM; echo started; exec sleep 600"
    first = start(lab, "--preemptible", "--grace", "0.2", command)
    assert lab.wait(lab.submit("true")) == 0
    assert lab.wait(first) == 0
    assert lab.job(first)["history"][0]["result"].endswith("killed by SIGKILL")


def test_running_job_that_is_asked_says_so(lab: Lab) -> None:
    command = "test $STOKER_ATTEMPT = 2 && exit 0; trap '' TERM; echo started; exec sleep 600"
    first = start(lab, "--preemptible", "--grace", "60", command)
    second = lab.submit("true")
    wait_until(lambda: lab.job(first)["gives_way_to"] == f"job {second}", what="the request")
    assert lab.ok("why", str(first)) == (
        f"job {first} is running on GPU 0; it is asked to make room for job {second}\n"
    )
    assert f"[asked to make room for job {second}]" in lab.ok("ls")
    assert f"GPU 0 is kept for it: job {first} is asked to vacate it" in lab.ok("why", str(second))
    third = lab.submit("--priority", "9", "true")
    wait_until(lambda: f"kept for job {second}" in lab.ok("why", str(third)), what="the reason")
    lab.ok("cancel", "--now", str(first))
    assert lab.wait(second, third) == 0
    assert lab.job(first)["state"] == "cancelled"


def test_job_waits_while_no_preemptible_job_can_make_enough_room(lab: Lab) -> None:
    gate = Gate(lab.folder)
    normal = lab.submit(gate.wait)
    gate.wait_for()
    second = lab.submit("--preemptible", "echo started")
    third = lab.submit("true")
    lab.wait_until(lambda: lab.state(normal) == "running")
    gate.open()
    assert lab.wait(normal, second, third) == 0
    started = {job: lab.job(job)["started_at"] for job in (second, third)}
    assert started[third] < started[second]
    assert lab.job(second)["preemptions"] == 0


def test_cancelled_job_does_not_keep_the_gpu(lab: Lab) -> None:
    command = "test $STOKER_ATTEMPT = 2 && exit 0; trap '' TERM; echo started; exec sleep 600"
    first = start(lab, "--preemptible", "--grace", "3", command)
    second = lab.submit("true")
    wait_until(lambda: lab.job(first)["gives_way_to"] is not None, what="the request")
    lab.ok("cancel", str(second))
    assert lab.wait(first) == 0
    assert lab.job(first)["preemptions"] == 1


@pytest.mark.parametrize("victim", ["daemon", "runner"])
def test_request_survives_a_crash(lab: Lab, victim: str) -> None:
    command = "test $STOKER_ATTEMPT = 2 && exit 0; trap '' TERM; echo started; exec sleep 600"
    first = start(lab, "--preemptible", "--grace", "2", command)
    second = lab.submit("true")
    wait_until(lambda: lab.job(first)["gives_way_to"] is not None, what="the request")
    lab.kill_daemon() if victim == "daemon" else lab.kill_runner()
    assert lab.wait(first, second) == 0
    assert [one["cause"] for one in lab.job(first)["history"]] == ["preempted", "exit"]


def test_preemptible_jobs_of_sweeps_and_job_files(lab: Lab) -> None:
    jobs = lab.folder / "jobs.txt"
    jobs.write_text("true  #stoker --preemptible\ntrue\n")
    lab.ok("submit", "-f", str(jobs))
    lab.ok("sweep", "--preemptible", "-p", "x", "1", "2", "--", "echo", "{x}")
    assert lab.wait() == 0
    listed = json.loads(lab.ok("ls", "--state", "all", "--json"))["jobs"]
    assert [job["preemptible"] for job in listed] == [True, False, True, True]
    assert [job["restartable"] for job in listed] == [True, False, True, True]


def test_foreground_run_refuses_preemptible_jobs(lab: Lab) -> None:
    jobs = lab.folder / "jobs.txt"
    jobs.write_text("true  #stoker --preemptible\n")
    done = lab.run("run", "-f", str(jobs))
    assert done.returncode == 2
    assert "`--preemptible` is only for jobs in the queue" in done.stderr
    assert lab.run("run", "--preemptible", "true").returncode == 2


def test_dry_run_shows_that_a_job_is_preemptible(lab: Lab) -> None:
    assert "preemptible" in lab.ok("submit", "--dry-run", "--preemptible", "true")
    [job] = json.loads(lab.ok("submit", "--dry-run", "--json", "--preemptible", "true"))["dry_run"]
    assert job["preemptible"] is True
