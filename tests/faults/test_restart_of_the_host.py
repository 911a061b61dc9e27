"""After a restart of the host, no view says that a job runs, with or without a daemon."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from stoker.boot import boot_id
from stoker.engine.store.interrupted_jobs import next_state
from tests.faults.test_crashes import kill_everything
from tests.helpers import Gate
from tests.lab import Lab

OTHER = "another-boot"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({}, "lost"),
        ({"boot": boot_id()}, "running"),
        ({"allocation": 3}, "running"),
        ({"state": "starting"}, "queued"),
        ({"state": "stopping"}, "lost"),
        ({"state": "stopping", "is_cancelled": True}, "cancelled"),
        ({"restartable": True}, "queued"),
        ({"restartable": True, "attempts": 6}, "lost"),
        ({"state": "done"}, "done"),
        ({"state": "submitted"}, "submitted"),
    ],
)
def test_state_after_a_restart_is_what_the_daemon_will_record(
    state: dict[str, Any], expected: str
) -> None:
    usual = {"state": "running", "boot": OTHER, "allocation": None, "is_cancelled": False}
    assert next_state(**{**usual, "restartable": False, "attempts": 1, **state}) == expected


def test_no_view_shows_a_job_of_an_earlier_boot_as_running(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=2)
    gate = Gate(lab.folder)
    lost = lab.submit("-G1", "--name", "lost-one", gate.wait)
    again = lab.submit("-G1", "--restartable", gate.wait)
    queued = lab.submit("-G2", "true")
    gate.wait_for(2)
    lab.wait_until(lambda: [lab.state(job) for job in (lost, again)] == ["running"] * 2)
    kill_everything(lab)
    lab.env["STOKER_BOOT_ID"] = OTHER

    states = [lab.job(job)["state"] for job in (lost, again, queued)]
    assert states == ["lost", "queued", "queued"]
    for words in (("ls",), ("show", "1-3"), ("why", str(lost)), ("why", str(again)), ("gpus",),
                  ("why", str(queued)), ("status",), (), ("daemon", "status")):  # fmt: skip
        done = lab.run(*words)
        text = (done.stdout + done.stderr).replace("no daemon is running", "")
        assert "running" not in text and "runs job" not in text, words
    assert "the host was restarted" in lab.ok("ls", str(lost))
    assert lab.ok("why", str(lost)) == f"job {lost} was lost: the host was restarted\n"
    assert "the host was restarted while it ran; it runs again" in lab.ok("why", str(again))
    assert json.loads(lab.ok("gpus", "--json"))["gpus"][0]["jobs"] == []
    for state, jobs in (("running", []), ("lost", [lost]), ("queued", [again, queued])):
        found = json.loads(lab.ok("ls", "--state", state, "--json"))
        assert [job["id"] for job in found["jobs"]] == jobs
        assert found["counts"] == {"lost": 1, "queued": 2}
    assert lab.daemon_pid() is None

    gate.open()
    lab.ok("daemon", "start")
    assert lab.wait(again, queued) == 0
    found = lab.job(lost)
    assert (found["state"], found["result"]) == ("lost", "the host was restarted")
    assert lab.job(again)["attempts"] == 2


def test_change_of_a_job_after_a_restart_starts_a_daemon_first(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=1)
    gate = Gate(lab.folder)
    job = lab.submit("-G0", gate.wait)
    gate.wait_for(1)
    lab.wait_until(lambda: lab.state(job) == "running")
    kill_everything(lab)
    lab.env["STOKER_BOOT_ID"] = OTHER
    gate.open()
    [new] = json.loads(lab.ok("rerun", "--json", str(job)))["jobs"]
    assert lab.wait(new) == 0
    assert lab.state(job) == "lost"
    connection = sqlite3.connect(lab.state_dir / "queue.db")
    states = dict(connection.execute("SELECT id, state FROM jobs"))
    connection.close()
    assert states == {job: "lost", new: "done"}
