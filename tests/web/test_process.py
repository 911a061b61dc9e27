"""The process of `stoker web`: one per state folder, private files, safe defaults."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.web.server_address import living_pid, living_place
from tests.lab import Lab
from tests.web.conftest import free_port
from tests.web.site import Site


@pytest.fixture
def site(lab: Lab) -> Site:
    return Site(lab, "--port", free_port())


def test_link_contains_the_token_in_its_fragment(site: Site) -> None:
    line = site.lab.ok("web").strip()
    assert line == f"http://127.0.0.1:{site.place.port}/#token={site.token}"
    assert len(site.token) >= 43
    status = json.loads(site.lab.ok("web", "status", "--json"))
    assert (status["running"], status["link"], status["pid"]) == (True, line, site.place.pid)


def test_state_folder_has_one_server(site: Site) -> None:
    pid = site.place.pid
    site.lab.ok("web")
    assert living_pid(str(site.lab.state_dir)) == pid
    for words in (["--port", free_port()], ["--read-only"], ["--token-file", "other"]):
        done = site.lab.run("web", *words)
        assert done.returncode == 1
        assert "stoker web stop" in done.stderr


def test_concurrent_starts_make_one_server(lab: Lab) -> None:
    starts = [lab.popen("web", "--port", free_port()) for _ in range(3)]
    for start in starts:
        start.communicate()
    assert any(start.returncode == 0 for start in starts)
    assert living_place(str(lab.state_dir)) is not None
    lab.ok("web", "stop")
    assert living_pid(str(lab.state_dir)) is None


def test_files_of_the_server_are_private(site: Site) -> None:
    for name in ("web.token", "web.json", "web.lock", "web.log"):
        mode = os.stat(site.lab.state_dir / name).st_mode
        assert stat.S_IMODE(mode) == 0o600, name
    words = Path(f"/proc/{site.place.pid}/cmdline").read_bytes()
    assert site.token.encode() not in words


def test_stopping_the_server_does_not_stop_jobs(site: Site) -> None:
    lab = site.lab
    job = lab.submit("sleep 1000")
    lab.wait_until(lambda: lab.state(job) == "running")
    assert lab.ok("web", "stop") == "web UI stopped; jobs continue\n"
    assert lab.run("web", "status").returncode == 1
    assert lab.ok("web", "stop") == "the web UI is not running\n"
    assert lab.state(job) == "running"


def test_port_in_use_is_an_error_if_requested_and_skipped_otherwise(lab: Lab) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = lab.run("web", "--port", port)
        assert done.returncode == 1
        assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
        assert living_pid(str(lab.state_dir)) is None
    with socket.socket() as usual:
        usual.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        lab.wait_until(lambda: _binds(usual, 8899))  # other tests may use it for a moment
        lab.ok("web")
        place = living_place(str(lab.state_dir))
        assert place is not None and place.port != 8899


def _binds(taker: socket.socket, port: int) -> bool:
    try:
        taker.bind(("127.0.0.1", port))
        taker.listen()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "2001:db8::1"])
def test_other_address_without_a_token_file_is_refused_with_a_hint(lab: Lab, host: str) -> None:
    done = lab.run("web", "--host", host)
    assert done.returncode == 2
    assert "ssh -L 8899:127.0.0.1:8899" in done.stderr
    assert living_pid(str(lab.state_dir)) is None


def _outer_address() -> str | None:
    """An address of this host that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return str(probe.getsockname()[0])


def test_server_at_another_address_answers_at_that_address_only(lab: Lab) -> None:
    address = _outer_address()
    if address is None:
        pytest.skip("this host has no other address")
    token = lab.folder / "token"
    done = lab.run("web", "--host", address, "--port", free_port(), "--token-file", str(token))
    assert done.returncode == 0, done.stderr
    assert "nothing is encrypted" in done.stderr.replace("\n", " ")
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    import http.client

    place = living_place(str(lab.state_dir))
    assert place is not None
    secret = token.read_text().strip()
    for host, status in ((f"{address}:{place.port}", 200), (f"localhost:{place.port}", 403)):
        line = http.client.HTTPConnection(address, place.port)
        sent = {"Host": host, "Authorization": f"Bearer {secret}"}
        line.request("GET", "/api/overview", headers=sent)
        assert line.getresponse().status == status
        line.close()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", place.port))


def test_token_file_that_others_can_read_is_refused(lab: Lab) -> None:
    token = lab.folder / "token"
    token.write_text("x" * 40)
    token.chmod(0o644)
    done = lab.run("web", "--token-file", str(token))
    assert "open to other users" in done.stderr
    token.chmod(0o600)
    token.write_text("short")
    assert "contains no token" in lab.run("web", "--token-file", str(token)).stderr
    token.unlink()
    token.symlink_to(lab.folder / "elsewhere")
    assert lab.run("web", "--token-file", str(token)).returncode != 0
    assert living_pid(str(lab.state_dir)) is None


def test_opening_a_browser_does_not_expose_the_token_to_other_users(
    new_site: Callable[..., Site],
) -> None:
    site = new_site()
    seen = site.lab.folder / "seen"
    browser = site.lab.folder / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {seen}.part && mv {seen}.part {seen}\n')
    browser.chmod(0o755)
    site.lab.ok("web", "--open", BROWSER=str(browser))
    site.lab.wait_until(seen.exists)
    link = seen.read_text()
    assert site.token not in link
    ticket = link.partition("#token=")[2]
    body = json.dumps({"token": ticket}).encode()
    sent = {"Content-Type": "application/json"}
    assert site.ask("POST", "/api/login", body, sent, token=None).status == 204
    assert site.ask("POST", "/api/login", body, sent, token=None).status == 401  # valid only once


def test_foreground_server_ends_with_its_terminal(lab: Lab) -> None:
    process = lab.popen("web", "--foreground", "--port", free_port())
    assert process.stdout is not None
    assert process.stdout.readline().startswith("http://127.0.0.1:")
    assert living_pid(str(lab.state_dir)) == process.pid
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert living_pid(str(lab.state_dir)) is None


def test_unknown_arguments_are_refused(lab: Lab) -> None:
    for words in (["dance"], ["status", "now"], ["--port", "0"], ["--port", "70000"]):
        assert lab.run("web", *words).returncode == 2, words


def test_jobs_inherit_environment_and_umask_of_the_server(lab: Lab) -> None:
    process = lab.run("web", "--port", free_port(), FLAVOUR="vanilla")
    assert process.returncode == 0
    site = Site(lab)
    job = site.submit('echo "$FLAVOUR $(umask)"')
    lab.wait(job)
    mask = os.umask(0o022)
    os.umask(mask)
    assert lab.log(job) == f"vanilla {mask:04o}\n"


def test_server_can_listen_on_the_other_loopback_address(lab: Lab) -> None:
    import http.client

    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this host has no IPv6")
    link = lab.ok("web", "--host", "::1", "--port", free_port()).strip()
    place = living_place(str(lab.state_dir))
    assert place is not None
    address, _, token = link.partition("#token=")
    assert address == f"http://[::1]:{place.port}/"
    line = http.client.HTTPConnection("::1", place.port)
    line.request("GET", "/api/overview", headers={"Authorization": f"Bearer {token}"})
    assert line.getresponse().status == 200
    line.close()
