"""Real cards (of a driver of our own making): the page says what `stoker gpus` says, and live."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fake_nvml import GIB, build
from tests.gpus.host import H200, GpuHost
from tests.web.conftest import free_port
from tests.web.site import Site


@pytest.fixture
def host(tmp_path: Path) -> Iterator[GpuHost]:
    host = GpuHost(tmp_path, build(tmp_path), H200, H200)
    yield host
    host.close()


def test_the_page_and_gpus_agree_on_cards_and_strangers(host: GpuHost) -> None:
    lab = host.lab()
    job = lab.submit("sleep 1000")
    lab.wait_until(lambda: lab.state(job) == "running")
    pid = host.stranger(1, 5 * GIB)
    seen = Site(lab, "--port", free_port()).overview()
    assert seen["gpus"] == lab.gpus()
    assert [one["pid"] for one in seen["gpus"][1]["strangers"]] == [pid]
    assert [one["id"] for one in seen["gpus"][0]["jobs"]] == [job]


def test_a_stranger_is_seen_without_any_news_from_the_daemon(host: GpuHost) -> None:
    lab = host.lab()
    site = Site(lab, "--port", free_port())
    with site.stream(site.overview()["event_id"]) as events:
        pid = host.stranger(0, 5 * GIB)
        found = events.until(lambda data: data["gpus"][0]["strangers"])
        assert found[-1]["gpus"][0]["strangers"][0]["pid"] == pid
