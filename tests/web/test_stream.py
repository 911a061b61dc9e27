"""The stream of changes: immediate, complete, resumable and bounded."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from tests.lab import wait_until
from tests.web.site import Site, changed_job

# Texts and times that change every moment.
_TIMES = ("why", "why_short", "starts_in", "run")


class Mirror:
    """What a browser knows: an overview, updated by events only."""

    def __init__(self, overview: dict[str, Any]) -> None:
        self.jobs = {
            job["id"]: job for key in ("running", "queue", "recent") for job in overview[key]
        }
        self.queue = [job["id"] for job in overview["queue"]]
        self.counts = overview["counts"]
        self.event = overview["event_id"]

    def apply(self, data: dict[str, Any]) -> None:
        assert data["event_id"] == self.event + 1  # no event is missing or repeated
        self.event = data["event_id"]
        self.counts = data["counts"]
        self.queue = data.get("queue", self.queue)
        for id in data["removed"]:
            del self.jobs[id]
        self.jobs |= {job["id"]: job for job in data["jobs"]}
        for id, wait in data["waits"].items():
            self.jobs[int(id)] |= wait
        for id, run in data["runs"].items():
            self.jobs[int(id)]["run"] = run

    def shown(self) -> dict[int, dict[str, Any]]:
        return {
            id: {k: v for k, v in job.items() if k not in _TIMES} for id, job in self.jobs.items()
        }


def test_change_is_pushed_to_the_client(site: Site) -> None:
    with site.stream(site.overview()["event_id"]) as events:
        assert events.headers["content-type"].startswith("text/event-stream")
        job = site.lab.submit("true")
        found = events.until(changed_job(job, "done"))
        assert found[-1]["counts"]["done"] == 1


def test_overview_updated_by_events_equals_a_new_overview(site: Site) -> None:
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
            mirror.apply(data)
    final = Mirror(site.overview())
    assert mirror.shown() == final.shown()
    assert (mirror.queue, mirror.counts) == (final.queue, final.counts)
    assert mirror.jobs[held]["tags"] == ["late"]


def test_changes_without_an_open_stream_are_not_missed(site: Site) -> None:
    mirror = Mirror(site.overview())
    job = site.lab.submit("true")
    site.lab.wait(job)
    with site.stream(mirror.event) as events:
        events.until(changed_job(job, "done"))


def test_stream_resumes_after_its_last_event(site: Site) -> None:
    lab = site.lab
    mirror = Mirror(site.overview())
    with site.stream(mirror.event) as events:
        first = lab.submit("--hold", "true")
        for data in events.until(changed_job(first, "held")):
            mirror.apply(data)
    second = lab.submit("--hold", "true")
    site.overview()  # another client's request creates an event
    third = lab.submit("--hold", "true")
    with site.stream(mirror.event) as events:
        for data in events.until(changed_job(third, "held")):
            mirror.apply(data)
    assert {first, second, third} <= set(mirror.jobs)


@pytest.mark.parametrize("known", [0, 1, 2**60])
def test_unknown_event_number_causes_a_reset(site: Site, known: int) -> None:
    now = site.overview()["event_id"]
    with site.stream(known) as events:
        assert events.next() == ("reset", {"schema": 2, "event_id": now})
        job = site.lab.submit("--hold", "true")
        events.until(changed_job(job, "held"))


def test_seven_streams_receive_the_same_events(site: Site) -> None:
    event = site.overview()["event_id"]
    with ExitStack() as stack:
        streams = [stack.enter_context(site.stream(event)) for _ in range(7)]
        job = site.lab.submit("true")
        received = [stream.until(changed_job(job, "done")) for stream in streams]
    assert all(changes == received[0] for changes in received)


def test_too_many_streams_are_refused_and_the_server_goes_on(site: Site) -> None:
    with ExitStack() as stack:
        streams = [stack.enter_context(site.stream(0)) for _ in range(65)]
        assert [stream.status for stream in streams].count(503) == 1
        assert site.overview()["counts"] == {}
    wait_until(lambda: _status(site) == 200)


def _status(site: Site) -> int:
    with site.stream() as events:
        return events.status


def test_change_through_the_api_is_pushed_without_a_daemon(site: Site) -> None:
    job = site.lab.submit("--hold", "true")
    assert site.lab.daemon_pid() is None
    with site.stream(site.overview()["event_id"]) as events:
        site.post("/api/jobs/act", {"action": "cancel", "ids": [job]})
        events.until(changed_job(job, "cancelled"))


def test_client_that_does_not_read_is_dropped_and_others_go_on(site: Site) -> None:
    lab = site.lab
    event = site.overview()["event_id"]
    with site.stream(event, receive_bytes=4096) as slow, site.stream(event) as quick:
        for number in range(4):  # each event is larger than all buffers between server and client
            words = "".join(f"echo {number} {'x' * 20_000}\n" for _ in range(40))
            lab.ok("submit", "--hold", "--file", "-", input=words)
            quick.until(changed_job(40 * (number + 1), "held"))
        wait_until(lambda: _peers(site, slow.raw.getsockname()[1]) == 0, what="not dropped")
        job = lab.submit("--hold", "true")
        quick.until(changed_job(job, "held"))


def _peers(site: Site, port: int) -> int:
    """The number of connections of the server to this port of a client."""
    from pathlib import Path

    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    ends = (f":{site.place.port:04X}", f":{port:04X}")
    rows = [line.split() for line in lines]
    return sum(1 for row in rows if row[1].endswith(ends[0]) and row[2].endswith(ends[1]))


def test_killed_server_restarts_on_the_same_port_with_valid_sessions(site: Site) -> None:
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


def test_stop_and_restart_of_the_daemon_are_pushed(site: Site) -> None:
    lab = site.lab
    lab.ok("daemon", "start")
    pid = lab.daemon_pid()
    with site.stream(site.overview()["event_id"]) as events:
        lab.ok("daemon", "stop")
        events.until(lambda data: data["daemon"]["pid"] is None)
        job = lab.submit("true")
        events.until(changed_job(job, "done"))
        assert lab.daemon_pid() not in (None, pid)


def test_stopped_server_ends_its_streams_cleanly(site: Site) -> None:
    with site.stream(site.overview()["event_id"]) as events:
        assert site.lab.ok("web", "stop") == "web UI stopped; jobs continue\n"
        with pytest.raises(EOFError):
            events.next()
