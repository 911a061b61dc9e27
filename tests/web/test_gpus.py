"""GPUs of a fake driver: the web API returns the same as `stoker gpus`, and live."""

from __future__ import annotations

import json

from tests.engine.gpus.host import GpuHost
from tests.fake_nvml import GIB
from tests.web.conftest import free_port
from tests.web.site import Site


def test_overview_and_gpus_agree_on_gpus_and_other_processes(host: GpuHost) -> None:
    lab = host.lab()
    job = lab.submit("sleep 1000")
    lab.wait_until(lambda: lab.state(job) == "running")
    pid = host.other_process(1, 5 * GIB)
    seen = Site(lab, "--port", free_port()).overview()
    assert seen["gpus"] == lab.gpus()
    assert [process["pid"] for process in seen["gpus"][1]["other_processes"]] == [pid]
    assert [shown["id"] for shown in seen["gpus"][0]["jobs"]] == [job]


def test_other_process_is_shown_without_a_message_from_the_daemon(host: GpuHost) -> None:
    lab = host.lab()
    site = Site(lab, "--port", free_port())
    with site.stream(site.overview()["event_id"]) as events:
        pid = host.other_process(0, 5 * GIB)
        found = events.until(lambda data: data["gpus"][0]["other_processes"])
        assert found[-1]["gpus"][0]["other_processes"][0]["pid"] == pid


def test_web_api_and_command_line_show_the_same_history(host: GpuHost) -> None:
    lab = host.lab(STOKER_TRACE_SECONDS="0.05")
    lab.ok("gpus", "drain", "all")
    waits = lab.submit("true")
    site = Site(lab, "--port", free_port())

    def reasons() -> list[list[str]]:
        gpus = site.ok("/api/gpus/history?hours=1")["gpus"]
        return [[one["reason"] for one in gpu["reasons"]] for gpu in gpus]

    lab.wait_until(lambda: reasons() == [["drained"], ["drained"]])
    shown = json.loads(lab.ok("gpus", "--history", "1h", "--json"))
    seen = site.ok("/api/gpus/history?hours=1")
    assert seen["seconds"] == shown["seconds"] == 3600
    for ours, theirs in zip(seen["gpus"], shown["gpus"], strict=True):
        assert ours.keys() == theirs.keys()
        assert [ours[key] for key in ("uuid", "jobs")] == [theirs[key] for key in ("uuid", "jobs")]
    lab.ok("gpus", "restore", "all")
    assert lab.wait(waits) == 0
