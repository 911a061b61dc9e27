"""Waiting and running jobs in the web API: short reasons, changes that start a job, folders."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.helpers import Gate
from tests.web.site import Site


def patch(site: Site, job: int, fields: dict[str, object]) -> int:
    return site.post(f"/api/jobs/{job}", fields, "PATCH").status


def test_suggested_change_starts_the_job(site: Site) -> None:
    """Two GPUs, one of them busy: a job with two GPUs waits, and starts with one."""
    lab = site.lab
    gate = Gate(lab.folder)
    lab.submit(gate.wait)
    gate.wait_for()
    wide = lab.submit("-G2", gate.wait)
    seen = site.overview()
    (waiting,) = seen["queue"]
    assert waiting["why_short"] == "needs 2 GPUs, 1 is free"
    assert [gpu["reserved_for"] for gpu in seen["gpus"]] == [wide, wide]
    (running,) = seen["running"]
    assert (running["run"]["percent"], running["run"]["warnings"]) == (None, [])
    (change,) = site.get(f"/api/jobs/{wide}").json["job"]["what_if"]
    assert change["words"] == "start now with 1 GPU"
    assert change["command"] == f"stoker edit {wide} --gpus 1"
    assert patch(site, wide, change["fields"]) == 200
    gate.wait_for(2)
    lab.wait_until(lambda: lab.state(wide) == "running")
    assert site.get(f"/api/jobs/{wide}").json["job"]["what_if"] == []


def test_queue_is_in_the_order_in_which_jobs_start(site: Site) -> None:
    """The trials of a sweep share one entitlement: a later job of its own starts before them."""
    lab = site.lab
    gate = Gate(lab.folder)
    lab.ok("sweep", "-q", "--name", "s", gate.wait, "x=1,2,3,4", "--lenient")
    gate.wait_for(2)
    plain, first = lab.submit("true"), lab.submit("--priority", "1", "true")
    later = lab.submit("--hold", "true")
    order = [first, plain, 3, 4]
    assert [job["id"] for job in site.overview()["queue"]] == [*order, later]
    assert [job["id"] for job in json.loads(lab.ok("status", "--json"))["waiting"]] == order

    top = pytest.importorskip("tests.features.top.test_app").top

    async def steps() -> None:
        async with top(lab) as screen:
            assert screen.app.state is not None
            assert screen.app.state.queue == (*order, later)

    asyncio.run(steps())


def test_request_of_a_waiting_job_is_edited_and_a_wrong_one_refused(site: Site) -> None:
    lab = site.lab
    job = lab.submit("--hold", "true")
    fields = {"gpu_ids": ["1"], "cpus": 2, "mem": "2G", "share": "time"}
    assert patch(site, job, fields) == 200
    found = lab.job(job)
    assert (found["gpu_ids"], found["cpus"], found["mem_bytes"]) == (["1"], 2, 2 << 30)
    assert found["share"] == "time"
    assert patch(site, job, {"gpu_ids": [], "cpus": 0, "mem": 0, "share": ""}) == 200
    found = lab.job(job)
    assert (found["gpu_ids"], found["cpus"], found["mem_bytes"]) == ([], None, None)
    assert found["share"] is None
    whole = lab.submit("--hold", "--exclusive", "-C", "/", "true")
    for wrong, text in (
        ({"gpu_mem": "much"}, "`gpu_mem`"),
        ({"share": "never"}, "`share`"),
        ({"gpu_mem": "1G"}, "exclude each other"),
        ({"gpus": 99}, "this host has 2 GPUs"),
    ):
        reply = site.post(f"/api/jobs/{whole}", wrong, "PATCH")
        assert reply.status in (400, 422), wrong
        assert text in reply.json["error"]["message"], wrong
    assert site.get("/api/folders").json["folders"] == ["/", lab.job(job)["cwd"]]
