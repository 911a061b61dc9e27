"""Requests that are repeated, refused in the middle, or take long."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from stoker.client import database_threads
from stoker.client.database_threads import DatabaseThreads
from stoker.client.queue import Queue
from stoker.errors import TimedOut, TryLater
from stoker.settings import Settings
from tests.lab import Lab
from tests.web.site import JSON, Reply, Site


def post(site: Site, path: str, content: object, key: str) -> Reply:
    headers = {"Content-Type": JSON, "Idempotency-Key": key}
    return site.ask("POST", path, json.dumps(content).encode(), headers)


def count(site: Site) -> int:
    return len(site.lab.states())


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/api/jobs", {"command": "true", "hold": True}),
        ("/api/jobs", {"command": "true", "hold": True, "array": "1-3"}),
        ("/api/batch", {"text": "echo 1\necho 2\n", "hold": True}),
        (
            "/api/sweeps",
            {"command": "echo {x}", "parameters": {"x": "1,2"}, "options": {"hold": True}},
        ),
    ],
)
def test_repeated_request_with_the_same_key_adds_nothing_twice(
    site: Site, path: str, form: dict[str, Any]
) -> None:
    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda _: post(site, path, form, "k"), range(4)))
    assert {reply.status for reply in replies} == {201}
    (jobs,) = {tuple(reply.json["jobs"]) for reply in replies}
    assert count(site) == len(jobs)
    site.kill()
    site.start()
    again = post(site, path, form, "k")
    assert (again.status, tuple(again.json["jobs"])) == (201, jobs)
    assert count(site) == len(jobs)


def test_other_key_or_edited_form_is_another_request(site: Site) -> None:
    form = {"command": "true", "hold": True}
    first = post(site, "/api/jobs", form, "k").json["jobs"]
    edited = post(site, "/api/jobs", {**form, "command": "echo"}, "k").json["jobs"]
    other = post(site, "/api/jobs", form, "l").json["jobs"]
    without = site.post("/api/jobs", form).json["jobs"]
    assert [first, edited, other, without] == [[1], [2], [3], [4]]


def test_repeated_rerun_with_the_same_key_reruns_once(site: Site) -> None:
    job = site.submit("true", gpus=0)
    site.lab.wait(job)
    form = {"action": "rerun", "ids": [job]}
    replies = [post(site, "/api/jobs/act", form, "k") for _ in range(2)]
    assert [reply.json["jobs"] for reply in replies] == [[job + 1], [job + 1]]
    assert post(site, "/api/jobs/act", form, "l").json["jobs"] == [job + 2]


def test_repeated_extension_with_the_same_key_extends_once(site: Site) -> None:
    form = {
        "command": "echo {x}", "parameters": {"x": "interval(0,1)"}, "method": "random",
        "trials": 2, "name": "r", "options": {"hold": True},
    }  # fmt: skip
    assert site.post("/api/sweeps", form).status == 201
    replies = [
        post(site, "/api/sweeps/r/act", {"action": "extend", "trials": 3}, "k") for _ in range(2)
    ]
    assert [reply.json["jobs"] for reply in replies] == [[3, 4, 5], [3, 4, 5]]
    assert count(site) == 5


def test_batch_with_an_error_near_its_end_queues_nothing(site: Site) -> None:
    """The dependency is looked up when the job is added, after more than one chunk of jobs."""
    text = "true\n" * 5001 + "true #stoker --after no-such-job\n"
    refused = site.post("/api/batch", {"text": text, "hold": True, "gpus": 0})
    assert refused.status == 404, refused
    assert count(site) == 0


def test_large_batch_is_queued_as_a_whole(site: Site) -> None:
    made = site.post("/api/batch", {"text": "true\n" * 5002, "hold": True, "gpus": 0})
    assert made.json["jobs"] == list(range(1, 5003))


def test_slow_change_is_not_reported_as_refused(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that has begun may still succeed; one that waited is given up."""
    monkeypatch.setattr(database_threads, "_TIMEOUT_SECONDS", 0.05)
    begun, may_go_on = threading.Event(), threading.Event()
    made: list[str] = []

    def slow(queue: Queue) -> None:
        begun.set()
        may_go_on.wait()
        made.append("slow")

    async def steps() -> None:
        threads = DatabaseThreads(Settings(str(lab.state_dir), devices="2"))
        first = asyncio.ensure_future(threads.write(slow))
        await asyncio.to_thread(begun.wait)
        try:
            with pytest.raises(TryLater, match="changed nothing"):
                await threads.write(lambda queue: made.append("waited"))
            with pytest.raises(TimedOut, match="still being processed"):
                await first
        finally:
            may_go_on.set()
        monkeypatch.setattr(database_threads, "_TIMEOUT_SECONDS", 60.0)
        await threads.write(lambda queue: made.append("last"))
        threads.close()

    asyncio.run(steps())
    assert made == ["slow", "last"]
