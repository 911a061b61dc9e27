"""The daemon, `why` and forecasts agree: a job that `why` says starts now does start."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from stoker.engine.store import meta
from stoker.engine.store.database import open_database
from tests.cli.helpers import as_json
from tests.helpers import Gate
from tests.lab import Lab


def a_script(lab: Lab) -> Path:
    """A program that runs until a file named after its argument exists."""
    path = lab.folder / "t.sh"
    path.write_text("until [ -e $1 ]; do sleep 0.02; done\n")
    return path


def reasons(lab: Lab, job: int) -> list[str]:
    found: list[str] = as_json(lab.ok("why", str(job), "--json"))["jobs"][0]["reasons"]
    return found


def test_estimate_learned_while_a_job_runs_lets_another_one_start(lab: Lab) -> None:
    script = str(a_script(lab))
    (lab.folder / "1").touch()
    lab.submit("sh", script, "9")
    quick = [lab.submit("sh", script, "1") for _ in range(2)]
    assert lab.wait(*quick) == 0
    wide = lab.submit("-G", "2", "true")
    last = lab.submit("sh", script, "1")
    lab.wait_until(lambda: lab.state(last) == "done")
    assert lab.state(wide) == "queued"
    (lab.folder / "9").touch()
    assert lab.wait() == 0


def test_drained_gpu_is_named_as_the_reason(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=4)
    lab.ok("gpus", "drain", "3")
    job = lab.submit("-G", "4", "true")
    lab.wait_until(lambda: "GPU 3 is drained" in reasons(lab, job))
    assert lab.state(job) == "queued"
    # It has no reservation, because it could not start even when all jobs end: others may pass.
    other = lab.submit("true")
    assert lab.wait(other) == 0
    assert "in 0" not in lab.ok("ls", str(job))
    lab.ok("gpus", "restore", "3")
    assert lab.wait(job) == 0


def test_tag_does_not_change_the_order(lab: Lab) -> None:
    stays, leaves = Gate(lab.folder, "stays"), Gate(lab.folder, "leaves")
    lab.submit("-T", "first", stays.wait)
    lab.submit(leaves.wait)
    stays.wait_for()
    leaves.wait_for()
    order = lab.folder / "order"
    jobs = [
        lab.submit("-T", tag, f"echo {place} >> {order}")
        for place, tag in enumerate(("first", "first", "other"))
    ]
    assert [reasons(lab, job)[-1] for job in jobs[1:]] == [
        "1 job in front of it",
        "2 jobs in front of it",
    ]
    leaves.open()
    assert lab.wait(*jobs) == 0
    assert order.read_text().split() == ["0", "1", "2"]
    stays.open()
    assert lab.wait() == 0


def test_place_in_the_queue_follows_the_policy(new_lab: Callable[..., Lab]) -> None:
    """A job with a higher priority overtakes, so the newest job may be the next."""
    lab = new_lab(devices=1)
    gate = Gate(lab.folder)
    lab.submit(gate.wait)
    gate.wait_for()
    low = lab.submit("true")
    high = lab.submit("-p", "5", "true")
    assert "in front of it" not in "; ".join(reasons(lab, high))
    assert reasons(lab, low)[-1] == "1 job in front of it"
    assert lab.ok("why").startswith(f"job {high} waits")
    gate.open()
    lab.wait()


def test_job_far_back_counts_the_jobs_in_front_of_it(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=1)
    gate = Gate(lab.folder)
    lab.submit(gate.wait)
    gate.wait_for()
    lab.ok("submit", "-q", "-f", "-", input="true\n" * 300)
    assert reasons(lab, 301)[-1] == "299 jobs in front of it"
    assert reasons(lab, 20)[-1] == "18 jobs in front of it"
    lab.ok("submit", "-q", "-G", "0", "--hold", "true")
    lab.ok("cancel", "all")


def test_why_reports_the_refusal_recorded_by_the_daemon(lab: Lab) -> None:
    lab.ok("daemon", "drain")
    job = lab.submit("true")
    lab.ok("daemon", "stop")
    db = open_database(str(lab.state_dir))
    meta.set_meta(db, "draining", 0)
    assert reasons(lab, job) == ["no daemon is running; `stoker daemon start` starts one"]
    meta.set_refusal(db, "no space left on device")
    db.close()
    assert reasons(lab, job)[1] == "no job can start at the moment: no space left on device"
    lab.ok("daemon", "start")
    assert lab.wait(job) == 0
    db = open_database(str(lab.state_dir))
    lab.wait_until(lambda: meta.refusal(db) is None)
    db.close()


def test_forecasts_keep_the_order_of_the_queue(new_lab: Callable[..., Lab]) -> None:
    """A job behind more jobs than the snapshot has gets no forecast before theirs."""
    lab = new_lab(devices=1)
    gate = Gate(lab.folder)
    lab.submit("-t", "1h", gate.wait)
    gate.wait_for()
    lab.ok("submit", "-q", "-t", "1h", "-f", "-", input="true\n" * 70)
    behind = lab.submit("-t", "1h", "--exclusive", "true")
    shown = lab.ok("ls", "-n", "100")
    likely = {
        int(row.split()[0]) for row in shown.splitlines()[1:] if re.match(r"\d+ +queued +in ", row)
    }
    assert 2 in likely and behind not in likely
    lab.ok("cancel", "all")


def test_forecast_without_a_known_end_is_the_same_for_all_commands(
    new_lab: Callable[..., Lab],
) -> None:
    lab = new_lab(devices=1)
    gate = Gate(lab.folder)
    lab.submit(gate.wait)
    gate.wait_for()
    waits = lab.submit("-t", "60s", "true")
    assert as_json(lab.ok("why", str(waits), "--json"))["jobs"][0]["starts_in"] is None
    assert as_json(lab.ok("ls", "--json"))["starts"] == {}
    gate.open()
    assert lab.wait() == 0
