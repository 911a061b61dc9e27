"""A TensorBoard that the web server starts: only for its user, and only with the secret."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from stoker.web.tensorboard_servers import TensorboardServers
from tests.lab import wait_until
from tests.other_user import as_other_user
from tests.results.event_bytes import scalars
from tests.web.site import Site

pytest.importorskip("tensorboard")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """(path with the secret, port) of a TensorBoard for a folder with one metric."""
    folder: Path = tmp_path_factory.mktemp("board")
    name = "events.out.tfevents.1700000000.host.1.0"
    (folder / name).write_bytes(scalars("loss", {1: 1.0, 2: 0.5}))
    servers = TensorboardServers()
    url, port = servers.open(str(folder))
    assert url.startswith(f"http://127.0.0.1:{port}/")
    assert servers.open(str(folder)) == (url, port)  # the same one
    yield url.partition(str(port))[2], port
    servers.close()


def ask(port: int, path: str) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", port)) as line:
        line.request("GET", path)
        reply = line.getresponse()
        return reply.status, reply.read()


def test_tensorboard_shows_the_event_files(address: tuple[str, int]) -> None:
    path, port = address
    assert b"<!doctype html>" in ask(port, path)[1].lower()
    wait_until(lambda: b"loss" in ask(port, f"{path}data/plugin/scalars/tags")[1])


def test_tensorboard_answers_only_addresses_with_the_secret(address: tuple[str, int]) -> None:
    path, port = address
    assert len(path) > 30
    for wrong in ("/", "/data/runs", f"{path[:-3]}/", f"/x{path}"):
        assert ask(port, wrong)[0] == 404, wrong


def test_other_user_cannot_use_tensorboard(address: tuple[str, int]) -> None:
    path, port = address

    def attempt() -> bytes:
        try:
            return str(ask(port, path)).encode()
        except (http.client.HTTPException, OSError) as error:
            return f"refused: {type(error).__name__}".encode()

    assert as_other_user(attempt).startswith(b"refused")
    assert ask(port, path)[0] == 200


def test_job_without_event_files_has_no_tensorboard(shared_site: Site) -> None:
    job = shared_site.lab.submit("--hold", "true")
    reply = shared_site.post(f"/api/jobs/{job}/files/tensorboard", {})
    assert (reply.status, reply.code) == (404, "not_found")
    folder = shared_site.lab.state_dir / f"jobs/0/{job}"
    folder.mkdir(parents=True)
    (folder / "events.out.tfevents.1.host").write_bytes(scalars("loss", {1: 1.0}))
    answer = shared_site.ok(f"/api/jobs/{job}/files")
    assert answer["tensorboard"] == f"tensorboard --logdir {folder}"
    assert answer["can_open_tensorboard"] is True
    assert shared_site.ok(f"/api/jobs/{job}")["job"]["metrics"]["loss"]["last"] == 1.0
