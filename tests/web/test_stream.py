"""The stream of changes: live, complete, resumed, bounded."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from tests.lab import wait_until
from tests.web.site import Site, changed_job


class Mirror:
    """What a page would know: an overview, kept true by events alone."""

    def __init__(self, overview: dict[str, Any]) -> None:
        self.jobs = {
            job["id"]: job for key in ("running", "queue", "recent") for job in overview[key]
        }
        self.queue = [job["id"] for job in overview["queue"]]
        self.counts = overview["counts"]
        self.event = overview["event_id"]

    def take(self, data: dict[str, Any]) -> None:
        assert data["event_id"] == self.event + 1  # none is missing, none comes twice
        self.event = data["event_id"]
        self.counts = data["counts"]
        self.queue = data.get("queue", self.queue)
        for id in data["removed"]:
            del self.jobs[id]
        self.jobs |= {job["id"]: job for job in data["jobs"]}
        for id, wait in data["waits"].items():
            self.jobs[int(id)] |= wait

    def shown(self) -> dict[int, dict[str, Any]]:
        return {
            id: {k: v for k, v in job.items() if k not in ("why", "starts_in")}
            for id, job in self.jobs.items()
        }


def test_a_change_arrives_by_itself(site: Site) -> None:
    with site.stream(site.overview()["event_id"]) as events:
        assert events.headers["content-type"].startswith("text/event-stream")
        job = site.lab.submit("true")
        found = events.until(changed_job(job, "done"))
        assert found[-1]["counts"]["done"] == 1


def test_events_alone_keep_a_page_true(site: Site) -> None:
    lab = site.lab
    lab.submit("true")
    mirror = Mirror(site.overview())
    with site.stream(mirror.event) as events:
        lab.ok("submit", "--file", "-", input="true\n" * 60 + "exit 1\n" * 5)
        held = lab.submit("--hold", "true")
        last = lab.submit("--name", "last", "true")
        lab.wait(last)
        lab.ok("tag", str(held), "+late")
        lab.wait(*range(1, held))
        site.post("/api/jobs/act", {"action": "priority", "ids": [held], "priority": 7})
        while mirror.jobs.get(held, {}).get("priority") != 7 or mirror.counts.get("done") != 62:
            kind, data = events.next()
            assert kind == "change"
            mirror.take(data)
    final = Mirror(site.overview())
    assert mirror.shown() == final.shown()
    assert (mirror.queue, mirror.counts) == (final.queue, final.counts)
    assert mirror.jobs[held]["tags"] == ["late"]


def test_what_changed_while_nobody_listened_is_not_missed(site: Site) -> None:
    mirror = Mirror(site.overview())
    job = site.lab.submit("true")
    site.lab.wait(job)
    with site.stream(mirror.event) as events:
        events.until(changed_job(job, "done"))


def test_a_stream_is_resumed_by_the_number_of_its_last_event(site: Site) -> None:
    lab = site.lab
    mirror = Mirror(site.overview())
    with site.stream(mirror.event) as events:
        first = lab.submit("--hold", "true")
        for data in events.until(changed_job(first, "held")):
            mirror.take(data)
    second = lab.submit("--hold", "true")
    site.overview()  # somebody else looks, and so moves the numbers on
    third = lab.submit("--hold", "true")
    with site.stream(mirror.event) as events:
        for data in events.until(changed_job(third, "held")):
            mirror.take(data)
    assert {first, second, third} <= set(mirror.jobs)


@pytest.mark.parametrize("known", [0, 1, 2**60])
def test_a_number_that_nobody_knows_resets_the_page(site: Site, known: int) -> None:
    now = site.overview()["event_id"]
    with site.stream(known) as events:
        assert events.next() == ("reset", {"schema": 1, "event_id": now})
        job = site.lab.submit("--hold", "true")
        events.until(changed_job(job, "held"))


def test_the_seventh_page_is_as_live_as_the_first(site: Site) -> None:
    event = site.overview()["event_id"]
    with ExitStack() as stack:
        pages = [stack.enter_context(site.stream(event)) for _ in range(7)]
        job = site.lab.submit("true")
        told = [page.until(changed_job(job, "done")) for page in pages]
    assert all(one == told[0] for one in told)


def test_more_streams_than_anybody_needs_are_refused_and_the_rest_stay_live(site: Site) -> None:
    with ExitStack() as stack:
        pages = [stack.enter_context(site.stream(0)) for _ in range(65)]
        assert [page.status for page in pages].count(503) == 1
        assert site.overview()["counts"] == {}
    wait_until(lambda: _status(site) == 200)


def _status(site: Site) -> int:
    with site.stream() as events:
        return events.status


def test_a_change_made_on_the_page_is_seen_without_a_daemon(site: Site) -> None:
    job = site.lab.submit("--hold", "true")
    assert site.lab.daemon_pid() is None
    with site.stream(site.overview()["event_id"]) as events:
        site.post("/api/jobs/act", {"action": "cancel", "ids": [job]})
        events.until(changed_job(job, "cancelled"))


@pytest.mark.slow
def test_a_client_that_does_not_read_is_dropped_and_others_go_on(site: Site) -> None:
    lab = site.lab
    event = site.overview()["event_id"]
    with site.stream(event, receive_bytes=4096) as slow, site.stream(event) as quick:
        for number in range(4):  # each event is larger than all buffers on the way
            words = "".join(f"echo {number} {'x' * 20_000}\n" for _ in range(40))
            lab.ok("submit", "--hold", "--file", "-", input=words)
            quick.until(changed_job(40 * (number + 1), "held"))
        wait_until(lambda: _peers(site, slow.raw.getsockname()[1]) == 0, what="not dropped")
        job = lab.submit("--hold", "true")
        quick.until(changed_job(job, "held"))


def _peers(site: Site, port: int) -> int:
    """Connections of the server to this port of a client."""
    from pathlib import Path

    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    ends = (f":{site.place.port:04X}", f":{port:04X}")
    rows = [line.split() for line in lines]
    return sum(1 for row in rows if row[1].endswith(ends[0]) and row[2].endswith(ends[1]))


def test_a_killed_server_comes_back_where_it_was_and_the_page_goes_on(site: Site) -> None:
    lab = site.lab
    running = lab.submit("sleep 1000")
    lab.wait_until(lambda: lab.state(running) == "running")
    cookie = site.login()
    before = site.place
    known = site.overview()["event_id"]
    with site.stream(known) as events:
        site.kill()
        with pytest.raises((EOFError, ConnectionResetError)):
            events.next()
    assert lab.state(running) == "running"
    site.options = ()
    site.start()
    assert site.place.port == before.port
    assert site.place.pid != before.pid
    assert site.ask("GET", "/api/overview", headers={"Cookie": cookie}, token=None).status == 200
    with site.stream(known) as events:
        assert events.next()[0] == "reset"
    assert [job["id"] for job in site.overview()["running"]] == [running]


def test_a_killed_daemon_and_its_return_are_seen(site: Site) -> None:
    lab = site.lab
    lab.ok("daemon", "start")
    pid = lab.daemon_pid()
    with site.stream(site.overview()["event_id"]) as events:
        lab.ok("daemon", "stop")
        events.until(lambda data: data["daemon"]["pid"] is None)
        job = lab.submit("true")
        events.until(changed_job(job, "done"))
        assert lab.daemon_pid() not in (None, pid)


def test_a_server_that_is_stopped_ends_its_streams_in_good_order(site: Site) -> None:
    with site.stream(site.overview()["event_id"]) as events:
        assert "closed" in site.lab.ok("web", "stop")
        with pytest.raises(EOFError):
            events.next()
