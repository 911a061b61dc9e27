"""The timeline of GPUs, with the numbers of `stoker gpus --history`."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from stoker.engine.store.database import open_database
from stoker.features.history import store_gpus as gpu_history
from stoker.features.history.gpu_time import Interval
from stoker.features.history.timeline import timeline_json
from stoker.settings import load_settings
from tests.helpers import Gate
from tests.lab import Lab
from tests.web.conftest import free_port
from tests.web.site import Site


def record(lab: Lab, *rows: tuple[Any, ...]) -> float:
    """Save intervals that began and ended this many seconds ago; returns now."""
    now = time.time()
    with closing(sqlite3.connect(lab.state_dir / "traces.db")) as db:
        db.executescript(gpu_history.SCHEMA)
        gpu_history.save(
            db,
            [Interval(uuid, now - since, now - until, *rest) for uuid, since, until, *rest in rows],
        )
        db.commit()
    return now


def test_timeline_answers_why_a_gpu_was_idle_and_agrees_with_the_history(
    new_lab: Callable[..., Lab],
) -> None:
    lab = new_lab(devices=2)
    job = lab.submit("--hold", "--name", "train <b>", "true")
    now = record(
        lab,
        ("SIM-0", 7200, 5400, "busy", (job, 999), "", 2),
        ("SIM-0", 5400, 4500, "waiting", (), f"reserved for job {job}", 0),
        ("SIM-0", 4500, 3630, "waiting", (), "memory held by another user (alice)", 0),
        ("SIM-1", 7200, 5400, "others", (), "memory held by another user (bob)", 0),
        ("SIM-1", 5400, 3630, "idle", (), "drained", 0),
    )
    site = Site(lab, "--port", free_port())
    found = site.ok(f"/api/timeline?from={now - 86400}&to={now}")
    assert [gpu["index"] for gpu in found["gpus"]] == [0, 1]
    blocks = found["gpus"][0]["blocks"]
    shown = [(one["kind"], one["job"], one["about"]) for one in blocks]
    assert ("waiting", None, job) in shown
    assert {one["job"] for one in blocks if one["kind"] == "busy"} == {job, 999}
    assert {one["lane"] for one in blocks if one["kind"] == "busy"} == {0, 1}
    words = [one["words"] for gpu in found["gpus"] for one in gpu["blocks"]]
    assert f"no job ran although jobs waited: reserved for job {job}" in words
    assert "memory held by another user (bob); no job waited for a GPU" in words
    assert found["gpus"][1]["blocks"][-2]["kind"] == "drained"
    assert found["jobs"] == {str(job): {"title": "train <b>", "state": "held"}}
    history = json.loads(lab.ok("gpus", "--history", "1d", "--json"))
    for ours, theirs in zip(found["gpus"], history["gpus"], strict=True):
        for key in theirs:
            if key.endswith("_seconds"):
                # The two ranges end at different times, a few seconds apart.
                assert ours[key] == pytest.approx(theirs[key], abs=30), key
        assert ours["jobs"] == theirs["jobs"]
        assert [one["reason"] for one in ours["reasons"]] == [
            one["reason"] for one in theirs["reasons"]
        ]


def test_many_blocks_are_merged_and_keep_their_sums(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=1)
    lab.ok("ls")
    rows = [
        ("SIM-0", 20_000 - at, 19_999 - at, "busy" if at % 2 else "idle", (at,) * (at % 2), "", 1)
        for at in range(10_000)
    ]
    now = record(lab, *rows)
    with closing(open_database(str(lab.state_dir))) as db:
        (gpu,) = timeline_json(
            db,
            load_settings()._replace(state_dir=str(lab.state_dir), devices="1"),
            now - 20_000,
            now - 10_000,
        )["gpus"]
    assert len(gpu["blocks"]) < 900
    assert gpu["busy_seconds"] == pytest.approx(5000, abs=1)
    assert "short jobs, busy 5" in gpu["blocks"][5]["words"]


def test_forecast_of_the_queue_is_to_the_right_of_now(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=1, STOKER_TRACE_SECONDS="0.05")
    gate = Gate(lab.folder)
    first = lab.submit("--time-limit", "1h", "--gpu-mem", "60G", gate.wait)
    gate.wait_for()
    second = lab.submit("--time-limit", "30m", "true")
    site = Site(lab, "--port", free_port())

    def blocks() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = site.ok("/api/timeline")["gpus"][0]["blocks"]
        return found

    lab.wait_until(lambda: any(one["job"] == first and not one["forecast"] for one in blocks()))
    found = site.ok("/api/timeline")
    ahead = [one for one in found["gpus"][0]["blocks"] if one["forecast"]]
    assert [one["job"] for one in ahead] == [first, second]
    assert all(one["from"] >= found["now"] - 1 for one in ahead)
    assert ahead[1]["to"] - ahead[1]["from"] == pytest.approx(1800, abs=60)
    assert found["forecast"]["words"] == ""

    # A simulated GPU has no measurements.
    (gpu,) = json.loads(lab.ok("gpus", "--json"))["gpus"]
    assert gpu["simulated"] is True
    assert gpu["memory_used_bytes"] is gpu["power_watts"] is gpu["jobs"][0]["memory_bytes"] is None
    assert "gpu_use" not in site.ok(f"/api/jobs/{first}/trace")["series"]
    assert site.ok("/api/gpus/SIM-0/trace?hours=0.02")["series"] == {}
    (running,) = site.overview()["running"]
    assert running["run"]["gpu_memory"] == ""
    assert running["run"]["warnings"] == []
    gate.open()
    assert lab.wait() == 0
    shown = json.loads(lab.ok("show", str(first), "--json"))["jobs"][0]
    assert (shown["gpu_memory_peak_bytes"], shown["gpu_use_percent"]) == (None, None)
    with closing(sqlite3.connect(lab.state_dir / "traces.db")) as db:
        kinds = {kind for (kind,) in db.execute("SELECT kind FROM tracks")}
    assert kinds <= {"job_processes"}


def test_wrong_range_is_refused(shared_site: Site) -> None:
    for query, message in (
        ("from=200&to=100", "the time range ends (100) before it begins (200)"),
        ("from=0&to=90000000", "a time range can have 31 days at most"),
        ("from=99999999990&to=99999999999", "a forecast can be for 7 days at most"),
        ("from=x", "`from`: input should be a valid number, unable to parse string as a number"),
        ("to=nan", "`to`: input should be less than or equal to 100000000000"),
    ):
        reply = shared_site.get(f"/api/timeline?{query}")
        assert (reply.status, reply.json["error"]["message"]) == (400, message)
