"""`stoker --host BOX web`: the web UI of the box through an ssh tunnel."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.features.remote.ssh_box import SshBox
from tests.lab import wait_until


@pytest.fixture
def port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def start(box: SshBox, port: int, *words: str) -> tuple[subprocess.Popen[str], str]:
    """Start the web UI; returns the process and the token in its link."""
    process = box.popen("web", "--port", str(port), *words)
    assert process.stdout is not None
    link = process.stdout.readline().strip()
    assert link.startswith(f"http://127.0.0.1:{port}/#token="), link
    return process, link.partition("=")[2]


def request(
    port: int, path: str, token: str | None = None, method: str = "GET", **headers: str
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    body = None
    if method == "POST":
        headers["Content-Type"] = "application/json"
        body = "{}"
    try:
        connection.request(method, path, body, {key.replace("_", "-"): value
                                                for key, value in headers.items()})  # fmt: skip
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def servers(box: SshBox) -> list[int]:
    """Processes on the box that run `stoker box web`."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
                env = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            is_box = f"STOKER_STATE_DIR={box.there.state_dir}".encode() in env
            if is_box and words[1:5] == [b"-m", b"stoker", b"box", b"web"]:
                found.append(int(entry))
    return found


def test_web_ui_shows_the_jobs_of_the_box(box: SshBox, port: int) -> None:
    job = box.there.submit("--hold", "--name", "on-the-box", "true")
    process, token = start(box, port)
    status, data = request(port, f"/api/jobs/{job}", token)
    assert (status, b"on-the-box" in data) == (200, True)
    assert request(port, "/")[0] == 200
    process.send_signal(signal.SIGINT)
    process.wait()
    assert process.returncode == 0
    wait_until(lambda: not servers(box), what="the end of the server")
    with pytest.raises(OSError):
        request(port, "/")


def test_web_ui_needs_the_token_and_its_own_address(box: SshBox, port: int) -> None:
    _, token = start(box, port)
    assert request(port, "/api/overview")[0] == 401
    assert request(port, "/api/overview", "wrong")[0] == 401
    assert request(port, "/api/overview", token)[0] == 200
    for host in ("evil.example", f"localhost:{port}", "127.0.0.1:1"):
        assert request(port, "/api/overview", token, Host=host)[0] == 403
    site = {"Origin": f"http://127.0.0.1:{port}"}
    assert request(port, "/api/overview", token, **site)[0] == 200
    assert request(port, "/api/overview", token, Origin="http://evil.example")[0] == 403


def test_server_listens_on_loopback_of_the_box_only(box: SshBox, port: int) -> None:
    start(box, port)
    (pid,) = servers(box)
    inodes = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()}
    listening = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
                listening.append(words[1].partition(":")[0])
    assert listening
    assert set(listening) <= {"0100007F", "00000000000000000000000001000000"}


def test_server_ends_with_the_connection_and_is_started_again(box: SshBox, port: int) -> None:
    process, token = start(box, port, "--read-only")
    (before,) = servers(box)
    box.cut()
    wait_until(lambda: before not in servers(box), what="the end of the first server")

    def answers() -> bool:
        try:
            return request(port, "/api/overview", token)[0] == 200
        except OSError:
            return False

    wait_until(answers, what="the second server")
    assert request(port, "/api/jobs", token, "POST")[0] == 403  # still read-only
    process.kill()
    wait_until(lambda: not servers(box), what="the end of the server")


def test_server_of_the_box_itself_is_left_alone(box: SshBox, port: int) -> None:
    own = box.there.ok("web", "--json")
    assert json.loads(own)["running"]
    try:
        process, token = start(box, port)
        assert request(port, "/api/overview", token)[0] == 200
        process.send_signal(signal.SIGTERM)
        process.wait()
        assert json.loads(box.ok("web", "status", "--json"))["link"] == json.loads(own)["link"]
    finally:
        assert box.ok("web", "stop") == "web UI stopped; jobs continue\n"


def test_port_in_use_is_an_error(box: SshBox) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        done = box.run("web", "--port", str(port))
    assert done.returncode == 1
    assert f"error: port {port} of this machine is in use" in done.stderr


def test_address_to_listen_on_cannot_be_chosen(box: SshBox) -> None:
    done = box.run("web", "--host", "0.0.0.0")
    assert done.returncode == 2
    assert "`stoker web --host` cannot be combined with `stoker --host`" in done.stderr
