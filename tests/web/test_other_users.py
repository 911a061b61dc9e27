"""Other users of the host cannot use the web UI, nor block it by a flood of connections."""

from __future__ import annotations

import http.client
import json
import select
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress

import pytest

from stoker.web.server_address import living_pid, living_place
from tests.lab import Lab
from tests.other_user import as_other_user, busy_other_user, need_ipv6, other_user_listens
from tests.web.conftest import free_port
from tests.web.site import JSON, Site


@pytest.fixture
def site(shared_site: Site) -> Site:
    return shared_site


def ask(address: str, port: int, path: str, **headers: str) -> int:
    with closing(http.client.HTTPConnection(address, port)) as line:
        line.request("GET", path, headers=headers)
        return line.getresponse().status


# -- the other loopback address -------------------------------------------------------------------


@pytest.mark.parametrize("address", ["::1", "127.0.0.1", "0.0.0.0", "::"])
def test_other_user_cannot_listen_at_an_address_of_localhost(site: Site, address: str) -> None:
    need_ipv6()

    def take() -> bytes:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family) as theirs:
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            try:
                theirs.bind((address, site.place.port))
                theirs.listen()
            except OSError as error:
                return str(error.strerror).encode()
            return b"took it"

    assert as_other_user(take) == b"Address already in use"


def test_port_held_by_another_user_at_the_other_address_is_refused(lab: Lab) -> None:
    need_ipv6()
    port = int(free_port())
    with other_user_listens("::1", port):
        done = lab.run("web", "--port", str(port))
    assert done.returncode == 1
    assert f"error: cannot listen on [::1]:{port}: Address already in use" in done.stderr
    assert f"hint: browsers could reach the other process as `localhost:{port}`" in done.stderr
    assert living_pid(str(lab.state_dir)) is None


def test_port_held_by_another_user_at_the_other_address_is_avoided(lab: Lab) -> None:
    need_ipv6()
    port = int(free_port())
    lab.ok("web", "--port", str(port))
    lab.ok("web", "stop")
    with other_user_listens("::1", port):
        lab.ok("web")  # prefers the port of the last server
        place = living_place(str(lab.state_dir))
        assert place is not None and place.port != port


def test_server_answers_at_both_addresses_of_localhost(site: Site) -> None:
    need_ipv6()
    port = site.place.port
    for address in ("127.0.0.1", "::1"):
        for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
            sent = {"Host": host, "Authorization": f"Bearer {site.token}"}
            assert ask(address, port, "/api/overview", **sent) == 200
            assert as_other_user(
                lambda address=address, sent=sent: b"%d" % ask(address, port, "/", **sent)  # type: ignore[misc]
            ) == b"403"  # fmt: skip


def test_server_at_another_loopback_address_has_no_other_name(lab: Lab) -> None:
    link = lab.ok("web", "--host", "127.0.0.7", "--port", free_port())
    assert link.startswith("http://127.0.0.7:")
    place = living_place(str(lab.state_dir))
    assert place is not None
    for host, status in (("127.0.0.7", 200), ("localhost", 403), ("127.0.0.1", 403)):
        sent = {"Host": f"{host}:{place.port}"}
        assert ask("127.0.0.7", place.port, "/healthz", **sent) == status


# -- unusual spellings of addresses ---------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["0", "0x0", "0.0", "00000", "0.0.0.0", "::", "0::0", "::ffff:0.0.0.0", "", "*"]
)
def test_wildcard_address_is_refused_in_every_spelling(lab: Lab, host: str) -> None:
    done = lab.run("web", "--host", host, "--port", free_port(), "--token-file", "token")
    assert done.returncode == 2
    assert f"`--host {host}` would listen on every address of this host" in done.stderr
    assert living_pid(str(lab.state_dir)) is None


@pytest.mark.parametrize("host", ["0x7f.1", "2130706433", "0177.0.0.1", "::ffff:127.0.0.1"])
def test_loopback_address_is_recognized_in_every_spelling(lab: Lab, host: str) -> None:
    link = lab.ok("web", "--host", host, "--port", free_port())
    assert link.startswith("http://127.0.0.1:")
    place = living_place(str(lab.state_dir))
    assert place is not None
    assert as_other_user(lambda: b"%d" % ask("127.0.0.1", place.port, "/")) == b"403"


def test_host_name_without_an_address_is_an_error(lab: Lab) -> None:
    done = lab.run("web", "--host", "no-such-host.invalid", "--token-file", "token")
    assert done.returncode == 2
    assert "`no-such-host.invalid` is not an address of this host" in done.stderr


# -- cookies --------------------------------------------------------------------------------------


def test_stolen_cookie_is_useless_to_another_user(site: Site) -> None:
    """Browsers send a cookie to every port of a host, including a server of another user."""
    cookie = site.login()
    port = site.place.port
    assert ask("127.0.0.1", port, "/api/overview", Cookie=cookie) == 200
    stolen = as_other_user(lambda: b"%d" % ask("127.0.0.1", port, "/api/overview", Cookie=cookie))
    assert stolen == b"403"


def test_users_are_distinguished_without_sock_diag(lab: Lab) -> None:
    """In a sandbox without NETLINK_SOCK_DIAG, the server reads the table of all sockets."""
    port = free_port()
    code = (
        "from stoker.web.http import peers; peers._has_look_up = False\n"
        f"from stoker.cli.main import main; main(['web', '--foreground', '--port', '{port}'])"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", code], env=lab.env, cwd=lab.folder, text=True, stdout=subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        token = server.stdout.readline().strip().partition("#token=")[2]
        sent = {"Authorization": f"Bearer {token}"}
        assert ask("127.0.0.1", int(port), "/api/overview", **sent) == 200
        stolen = as_other_user(lambda: b"%d" % ask("127.0.0.1", int(port), "/", **sent))
        assert stolen == b"403"
        assert ask("127.0.0.1", int(port), "/api/overview", **sent) == 200
    finally:
        server.terminate()
        server.communicate()


# -- floods ---------------------------------------------------------------------------------------


def test_other_users_share_few_connections(site: Site) -> None:
    port = site.place.port

    def work() -> bytes:
        events = select.epoll()
        connections: dict[int, socket.socket] = {}
        for _ in range(40):
            connection = socket.socket()
            connection.setblocking(False)
            connection.connect_ex(("127.0.0.1", port))
            events.register(connection, select.EPOLLHUP)
            connections[connection.fileno()] = connection
        while len(connections) > 8:  # the others are reset
            for descriptor, _event in events.poll():
                connections.pop(descriptor).close()
        answers = []
        for connection in connections.values():
            connection.setblocking(True)
            connection.sendall(f"GET / HTTP/1.1\r\nHost: {site.host}\r\n\r\n".encode())
            answers.append(connection.recv(12))
        return b" ".join(answers)

    assert as_other_user(work) == b" ".join([b"HTTP/1.1 403"] * 8)
    assert site.get("/healthz").status == 200


def test_owner_is_answered_while_another_user_floods_the_port(site: Site) -> None:
    port = site.place.port

    def flood(begin: Callable[[], None]) -> None:
        held: list[socket.socket] = []
        while True:
            line = socket.socket()
            line.setblocking(False)
            line.connect_ex(("127.0.0.1", port))
            held.append(line)
            if len(held) == 300:
                begin()
            if len(held) > 600:
                held.pop(0).close()

    with busy_other_user(flood), closing(_connect_through_flood(port)) as connection:
        body = json.dumps({"token": site.token}).encode()
        headers = {"Host": site.host, "Content-Type": JSON, "Origin": f"http://{site.host}"}
        connection.request("POST", "/api/login", body, headers)
        reply = connection.getresponse()
        reply.read()
        assert reply.status == 204
        for _ in range(20):
            connection.request("GET", "/healthz", headers={"Host": site.host})
            reply = connection.getresponse()
            reply.read()
            assert reply.status == 200


def _connect_through_flood(port: int) -> http.client.HTTPConnection:
    """Connect as a browser does, with several attempts: while the backlog is full, the kernel drops
    some attempts of every user (about half of them here) and retries each with growing delays."""
    for _ in range(40):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
        with suppress(TimeoutError):
            connection.connect()
            assert connection.sock is not None
            connection.sock.settimeout(60)
            return connection
    pytest.fail("40 attempts to connect got no answer")
