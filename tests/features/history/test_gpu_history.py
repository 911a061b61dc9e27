"""`stoker gpus --history`: what real daemons recorded about their GPUs."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoker.features.history import store_gpus as gpu_history
from stoker.features.history.gpu_time import Interval
from tests.cli.helpers import as_json
from tests.helpers import Gate
from tests.lab import Lab


def history(lab: Lab) -> dict[int, dict[str, Any]]:
    """What each GPU did in the last hour, by its index."""
    found = as_json(lab.ok("gpus", "--history", "1h", "--json"))
    assert found["seconds"] == 3600
    return {gpu["index"]: gpu for gpu in found["gpus"]}


def reasons(lab: Lab, gpu: int) -> list[str]:
    return [one["reason"] for one in history(lab)[gpu]["reasons"]]


def wait_for_reason(lab: Lab, gpu: int, reason: str) -> None:
    lab.wait_until(lambda: reason in reasons(lab, gpu))


def test_history_shows_busy_time_and_the_jobs_of_each_gpu(quick_lab: Lab) -> None:
    lab = quick_lab
    gate = Gate(lab.folder)
    lab.submit(gate.wait)
    gate.wait_for()
    lab.wait_until(lambda: history(lab)[0]["busy_seconds"] > 0.1)
    lab.wait_until(lambda: history(lab)[1]["idle_seconds"] > 0.1)
    found = history(lab)
    assert (found[0]["jobs"], found[1]["jobs"]) == (1, 0)
    assert found[1]["busy_seconds"] == 0
    assert found[0]["reasons"] == found[1]["reasons"] == []
    for gpu in found.values():
        parts = [value for name, value in gpu.items() if name.endswith("_seconds")]
        assert sum(parts) == pytest.approx(3600, abs=1)
    gate.open()
    assert lab.wait() == 0


def test_idle_gpu_is_reserved_for_the_job_that_needs_both(quick_lab: Lab) -> None:
    lab = quick_lab
    gate = Gate(lab.folder)
    lab.submit(gate.wait)
    gate.wait_for()
    wide = lab.submit("--gpus", "2", "true")
    wait_for_reason(lab, 1, f"reserved for job {wide}")
    assert reasons(lab, 0) == []
    text = lab.ok("gpus", "--history", "1h")
    assert f"reserved for job {wide}" in text
    gate.open()
    assert lab.wait() == 0


def test_drained_gpu_and_drained_queue_are_reasons(quick_lab: Lab) -> None:
    lab = quick_lab
    lab.ok("gpus", "drain", "all")
    job = lab.submit("true")
    wait_for_reason(lab, 0, "drained")
    lab.ok("daemon", "drain")
    wait_for_reason(lab, 1, "the queue is drained")
    lab.ok("gpus", "restore", "all")
    lab.ok("daemon", "resume")
    assert lab.wait(job) == 0


def test_job_that_needs_more_gpus_than_are_open_is_a_reason(quick_lab: Lab) -> None:
    lab = quick_lab
    lab.ok("gpus", "drain", "0")
    wide = lab.submit("--gpus", "2", "true")
    wait_for_reason(lab, 1, "the waiting jobs need 2 GPUs")
    lab.ok("gpus", "restore", "0")
    assert lab.wait(wide) == 0


def test_history_survives_a_restart_and_shows_that_the_daemon_was_stopped(quick_lab: Lab) -> None:
    lab = quick_lab
    gate = Gate(lab.folder)
    lab.submit(gate.wait)
    gate.wait_for()
    wide = lab.submit("--gpus", "2", "true")
    wait_for_reason(lab, 1, f"reserved for job {wide}")
    lab.ok("daemon", "stop")
    lab.wait_until(lambda: history(lab)[1]["not_running_seconds"] > 1)
    assert "Stoker was not running" in reasons(lab, 1)
    before = history(lab)
    lab.ok("daemon", "start")
    lab.wait_until(lambda: history(lab)[0]["busy_seconds"] > before[0]["busy_seconds"] + 0.1)
    after = history(lab)
    assert after[1]["not_running_seconds"] >= before[1]["not_running_seconds"] - 0.2
    assert f"reserved for job {wide}" in reasons(lab, 1)
    gate.open()
    assert lab.wait() == 0


def test_restarted_daemon_that_has_recorded_nothing_does_not_claim_the_time_before_it(
    quick_lab: Lab,
) -> None:
    lab = quick_lab
    lab.ok("daemon", "start")
    lab.wait_until(lambda: history(lab)[0]["idle_seconds"] > 0.1)
    lab.ok("daemon", "stop")
    lab.wait_until(lambda: history(lab)[0]["not_running_seconds"] > 0.5)
    lab.env["STOKER_TRACE_SECONDS"] = "0"
    lab.ok("daemon", "start")
    assert history(lab)[0]["not_running_seconds"] > 0.5


def test_killed_daemon_leaves_what_it_recorded(quick_lab: Lab) -> None:
    lab = quick_lab
    gate = Gate(lab.folder)
    lab.submit(gate.wait)
    gate.wait_for()
    lab.wait_until(lambda: history(lab)[0]["busy_seconds"] > 0.1)
    lab.kill_daemon()
    assert history(lab)[0]["busy_seconds"] > 0.1
    lab.ok("daemon", "start")
    gate.open()
    assert lab.wait() == 0


def test_history_is_empty_without_records(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=1)
    assert lab.ok("gpus", "--history", "7d").splitlines()[-1] == "no records yet"
    off = new_lab(devices=1, STOKER_TRACE_SECONDS="0")
    last = off.ok("gpus", "--history", "7d").splitlines()[-1]
    assert last == "nothing is recorded: `trace_seconds` is 0 in the settings"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--history", "x"), "`x` is not a duration"),
        (("--history", "0s"), "--history needs a time above 0"),
        (("--history", "1h", "drain", "0"), "--history only shows GPUs, and `drain` changes them"),
        (("--history", "1h", "--on", "lab"), "--history shows the GPUs of this host, not of `lab`"),
    ],
)
def test_wrong_history_option_is_refused(lab: Lab, words: tuple[str, ...], message: str) -> None:
    done = lab.run("gpus", *words)
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, f"error: {message}")
    assert "hint: " in done.stderr


def test_damaged_history_is_empty(quick_lab: Lab) -> None:
    lab = quick_lab
    lab.ok("daemon", "start")
    lab.wait_until(lambda: history(lab)[0]["idle_seconds"] > 0)
    lab.ok("daemon", "stop")
    (lab.state_dir / "traces.db").write_bytes(b"x" * 10_000)
    assert gpu_history.read(str(lab.state_dir), 0) == {}
    assert "no records yet" in lab.ok("gpus", "--history", "1h")


def test_table_has_shares_and_reasons(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=2)
    lab.ok("ls")
    now = time.time()
    rows: list[Any] = [
        ("SIM-0", 7200, 5400, "busy", (1, 2), "", 2),
        ("SIM-0", 5400, 4500, "waiting", (), "reserved for job 25", 0),
        ("SIM-0", 4500, 3630, "waiting", (), "memory held by another user (alice)", 0),
        ("SIM-1", 7200, 5400, "others", (), "", 0),
        ("SIM-1", 5400, 3630, "idle", (), "", 0),
    ]
    db = sqlite3.connect(lab.state_dir / "traces.db")
    db.executescript(gpu_history.SCHEMA)
    gpu_history.save(
        db,
        [Interval(uuid, now - since, now - until, *rest) for uuid, since, until, *rest in rows],
    )
    db.commit()
    db.close()
    shown, _, last = lab.ok("gpus", "--history", "1d").rpartition("\n\n")
    assert shown == (
        "GPU  BUSY  JOBS  OTHER USERS  NO WORK  JOBS WAITED  NOT RUNNING\n"
        "0    25%   2     0%           0%       25%          50%\n"
        "1    0%    0     25%          25%      0%           50%\n"
        "\n"
        "GPU  TIME    WHY NO JOB RAN\n"
        "0    1h00m   Stoker was not running\n"
        "0    15m00s  reserved for job 25\n"
        "0    14m30s  memory held by another user (alice)\n"
        "1    1h00m   Stoker was not running"
    )
    assert last.startswith("records begin at ")


def test_old_intervals_are_dropped_and_their_number_is_bounded(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "traces.db", isolation_level=None)
    db.executescript(gpu_history.SCHEMA)
    month = gpu_history.KEPT_SECONDS
    old = [Interval("GPU-1", at, at + 1.0, "busy", (), "", 0) for at in range(500)]
    new = [Interval("GPU-1", month + 600 + at, month + 601 + at, "idle", (), "", 0)
           for at in range(gpu_history.MAX_ROWS + 300)]  # fmt: skip
    db.execute("BEGIN")
    gpu_history.save(db, [*old, *new])
    db.execute("COMMIT")
    for _ in range(10):
        gpu_history.clean_up(db, month + 600)
    db.close()
    kept = gpu_history.read(str(tmp_path), 0)["GPU-1"]
    assert len(kept) == gpu_history.MAX_ROWS
    assert {one.kind for one in kept} == {"idle"}
