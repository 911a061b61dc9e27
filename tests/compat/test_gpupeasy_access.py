"""Access control of the two servers: only their user, or clients with the token."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.compat.gpupeasy_lab import PeasyLab, send_request, stop
from tests.lab import HANG_SECONDS, wait_until
from tests.other_user import as_other_user, become_other, need_ipv6, other_user_listens


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[PeasyLab]:
    lab = PeasyLab(tmp_path)
    yield lab
    lab.close()


def request(port: int, path: str = "/availabledevices", body: bytes = b"", **headers: str) -> bytes:
    head = {"Host": f"127.0.0.1:{port}", "Content-Length": str(len(body)), **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    return f"{'POST' if body else 'GET'} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


def submission(path: Path) -> bytes:
    job = {"jobName": "evil", "outFile": str(path), "jobCommand": ["touch", f"{path}.ran"]}
    return json.dumps({"job": job}).encode()


def exchange(port: int, data: bytes, has_more: bool = False) -> bytes:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(data)
        if not has_more:
            with suppress(OSError):  # the server may have closed it already
                connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_servers_listen_on_loopback_only(lab: PeasyLab) -> None:
    lab.serve()
    lab.show()
    rows = []
    for table in ("tcp", "tcp6"):
        with suppress(FileNotFoundError), open(f"/proc/net/{table}", encoding="ascii") as file:
            rows += [line.split() for line in file.readlines()[1:]]
    for port in (lab.port, lab.gui_port):
        addresses = {row[1] for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")}
        assert f"0100007F:{port:04X}" in addresses
        assert addresses <= {f"{host}:{port:04X}" for host in ("0100007F", f"{'0' * 24}01000000")}


def test_other_user_cannot_listen_at_the_ipv6_address_of_localhost(shared: PeasyLab) -> None:
    need_ipv6()

    def take(port: int) -> bytes:
        with socket.socket(socket.AF_INET6) as theirs:
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                theirs.bind(("::1", port))
            except OSError as error:
                return str(error.strerror).encode()
            return b"took it"

    for port in (shared.port, shared.gui_port):
        assert as_other_user(lambda port=port: take(port)) == b"Address already in use"  # type: ignore[misc]


def test_server_refuses_a_port_that_another_user_holds_at_the_other_address(lab: PeasyLab) -> None:
    need_ipv6()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for words in (["server", "--logdir", str(lab.logdir)], ["gui"]):
        with other_user_listens("::1", port):
            server = lab.launch("-m", "gpupeasy", *words, "--port", str(port))
            output = server.communicate()[0]
        assert server.returncode == 1
        assert f"error: cannot listen on [::1]:{port}: Address already in use" in output
        assert f"hint: browsers could reach the other process as `localhost:{port}`" in output


def test_localhost_reaches_the_server_at_both_addresses(shared: PeasyLab) -> None:
    need_ipv6()
    for port, path in ((shared.port, "/availabledevices"), (shared.gui_port, "/successfuljobs")):
        data = request(port, path, Host=f"localhost:{port}", Connection="close")

        def ask_at(address: str, port: int = port, data: bytes = data) -> bytes:
            with socket.create_connection((address, port)) as connection:
                connection.sendall(data)
                return b"".join(iter(lambda: connection.recv(65536), b""))

        for address in ("127.0.0.1", "::1"):
            assert ask_at(address).startswith(b"HTTP/1.1 200 ")
            assert as_other_user(lambda address=address: ask_at(address))[9:12] == b"401"  # type: ignore[misc]


@pytest.mark.parametrize("host", ["0", "0x0", "", "::", "::ffff:0.0.0.0"])
def test_any_address_needs_a_token_in_every_notation(lab: PeasyLab, host: str) -> None:
    gui = lab.launch("-m", "gpupeasy", "gui", "--host", host, "--port", "0")
    assert "--token-file" in gui.communicate()[0]
    assert gui.returncode == 2


def test_submit_does_not_connect_to_a_server_of_another_user_on_localhost(lab: PeasyLab) -> None:
    need_ipv6()
    with socket.create_server(("127.0.0.1", 0)) as free:
        lab.port = free.getsockname()[1]
    for address in ("::1", "127.0.0.1"):
        with other_user_listens(address, lab.port):
            submit = lab.launch(
                "-m", "gpupeasy", "submit", "/dev/null",
                "--backend-host", "localhost", "--backend-port", str(lab.port),
            )  # fmt: skip
            assert "Connection error" in submit.communicate()[0]
            assert submit.returncode == 69


def test_other_user_of_the_host_is_refused(lab: PeasyLab) -> None:
    lab.serve()
    lab.show()
    for port in (lab.port, lab.gui_port):
        mine = exchange(port, request(port, "/successfuljobs"))
        theirs = as_other_user(lambda port=port: exchange(port, request(port, "/successfuljobs")))  # type: ignore[misc]
        assert mine.startswith(b"HTTP/1.1 200 ")
        assert theirs.startswith(b"HTTP/1.1 401 ")
    body = submission(lab.work / "evil")
    theirs = as_other_user(lambda: exchange(lab.port, request(lab.port, "/addnewjob", body)))
    assert theirs.startswith(b"HTTP/1.1 401 ")
    assert not (lab.work / "evil").exists()


def test_other_user_who_disconnects_at_once_is_not_mistaken_for_root(lab: PeasyLab) -> None:
    """The kernel lists a closed connection as one of root."""
    lab.serve()
    body = submission(lab.work / "evil")

    def send_and_disconnect() -> bytes:
        sent = 0
        for _ in range(100):
            with (
                suppress(ConnectionResetError),  # over the connection limit
                socket.create_connection(("127.0.0.1", lab.port)) as connection,
            ):
                connection.sendall(request(lab.port, "/addnewjob", body))
                sent += 1
        return b"%d" % sent

    assert int(as_other_user(send_and_disconnect)) > 0
    wait_until(lambda: lab.value("/availabledevices"))
    lab.wait_for("Succeeded", lab.add("true"))
    assert not (lab.work / "evil").exists()
    assert lab.value("/failedjobs") == []


def test_other_user_cannot_take_all_connections(lab: PeasyLab) -> None:
    lab.serve()

    def hold_many() -> bytes:
        held = [socket.create_connection(("127.0.0.1", lab.port)) for _ in range(100)]
        done = exchange_as_owner()
        del held
        return done

    def exchange_as_owner() -> bytes:
        os.write(ready, b"x")
        return os.read(go, 1)

    waiting, ready = os.pipe()
    go, release = os.pipe()
    if os.fork() == 0:  # the owner, while the other user holds the connections
        os.read(waiting, 1)
        is_ok = exchange(lab.port, request(lab.port)).startswith(b"HTTP/1.1 200 ")
        os.write(release, b"y" if is_ok else b"n")
        os._exit(0)
    assert as_other_user(hold_many) == b"y"
    os.wait()


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "localhost:1", "evil.example:{port}",
             "127.0.0.1:{port}.x", "", "localhost:{port}@evil"],
)  # fmt: skip
def test_foreign_host_header_is_refused(shared: PeasyLab, host: str) -> None:
    for port in (shared.port, shared.gui_port):
        answer = exchange(port, request(port, Host=host.format(port=port)))
        assert answer.startswith(b"HTTP/1.1 403 "), answer


def test_request_with_two_or_no_host_headers_is_refused(shared: PeasyLab) -> None:
    host = f"Host: 127.0.0.1:{shared.port}\r\n"
    for head in (host * 2, "", f"{host}Host: evil\r\n"):
        data = f"GET /availabledevices HTTP/1.1\r\n{head}\r\n".encode()
        assert exchange(shared.port, data).startswith(b"HTTP/1.1 400 ")
    data = f"GET http://evil/ HTTP/1.1\r\n{host}\r\n".encode()
    assert exchange(shared.port, data).startswith(b"HTTP/1.1 400 ")


def test_all_own_names_are_accepted_as_host(shared: PeasyLab) -> None:
    for name in ("127.0.0.1", "localhost", "LocalHost", "0.0.0.0"):
        answer = exchange(shared.port, request(shared.port, Host=f"{name}:{shared.port}"))
        assert answer.startswith(b"HTTP/1.1 200 ")


def test_other_sites_can_neither_submit_nor_read(shared: PeasyLab) -> None:
    body = submission(shared.work / "evil")
    other = shared.gui_port
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://localhost:{other}"},
        {"Origin": f"https://127.0.0.1:{shared.port}"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
    ):
        for kind in ("text/plain", "application/json"):
            data = request(shared.port, "/addnewjob", body, **headers, **{"Content-Type": kind})
            assert exchange(shared.port, data).startswith(b"HTTP/1.1 403 ")
    reading = request(shared.port, Origin="http://evil.example")
    assert exchange(shared.port, reading).startswith(b"HTTP/1.1 403 ")
    assert not (shared.work / "evil").exists()
    assert b"Access-Control" not in exchange(shared.port, request(shared.port))


def test_own_pages_and_links_from_other_sites_work(shared: PeasyLab) -> None:
    port = shared.gui_port
    own = {"Origin": f"http://localhost:{port}", "Sec-Fetch-Site": "same-origin"}
    form = request(port, "/testCommandParser", b"jobCommand=ls", Host=f"localhost:{port}", **own)
    assert exchange(port, form).startswith(b"HTTP/1.1 302 ")
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert exchange(port, request(port, "/", b"", **link)).startswith(b"HTTP/1.1 200 ")
    # With `no-referrer`, browsers send `Origin: null` with the forms of our own pages.
    assert b"Referrer-Policy: same-origin" in exchange(port, request(port, "/"))


def test_large_requests_are_refused_and_malformed_ones_are_harmless(shared: PeasyLab) -> None:
    port = shared.port
    host = f"Host: 127.0.0.1:{port}\r\n".encode()
    head = b"POST /addnewjob HTTP/1.1\r\n" + host
    huge = head + b"Content-Length: 99999999999\r\n\r\n"
    assert exchange(port, huge, has_more=True)[9:12] == b"413"
    assert exchange(port, head + b"Content-Length: -1\r\n\r\n")[9:12] == b"400"
    chunks = b"Transfer-Encoding: chunked\r\n\r\n" + b"10000\r\n%s\r\n" % (b"[" * 65536) * 257
    assert exchange(port, head + chunks, has_more=True)[9:12] == b"413"
    with suppress(ConnectionResetError):  # the server closes before it has read everything
        exchange(port, b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * 300_000)
    exchange(port, head + b"Content-Length: 50\r\n\r\nshort")
    exchange(port, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    exchange(port, b"BREW /pot HTCPCP/1.0\r\n\r\n")
    exchange(port, head + b"Content-Length: 5000\r\n\r\n" + b"[" * 5000)
    assert shared.value("/availabledevices") == ["0", "1", "2"]


@pytest.mark.parametrize("depth", [100, 900, 100_000])
def test_deeply_nested_json_gets_an_error_response(shared: PeasyLab, depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    for body in (
        nested,
        b'{"job": %s}' % nested,
        b'{"job": {"outFile": "x", "jobName": "x", "jobCommand": %s}}' % nested,
        b'{"job": {"outFile": %s, "jobName": %s, "jobCommand": ["x"]}}' % (nested, nested),
    ):
        for path in ("/addnewjob", "/addnewjobs", "/adddevice"):
            answer = exchange(shared.port, request(shared.port, path, body))
            assert answer.startswith(b"HTTP/1.1 200 "), answer
            assert b'"status": "failed"' in answer
    link = f"/?messages={nested[:1500].decode() + nested[-1500:].decode()}"
    answer = exchange(shared.gui_port, request(shared.gui_port, link))
    assert answer.startswith(b"HTTP/1.1 200 ")
    link = f'/?messages={{"errorMessage":{"[" * min(depth, 2000)}{"]" * min(depth, 2000)}}}'
    answer = exchange(shared.gui_port, request(shared.gui_port, link))
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_reset_request_of_another_user_is_not_attributed_to_the_owner(lab: PeasyLab) -> None:
    """A connection that was reset before it is accepted keeps its data, while its port is free
    again: the process that uses the port next is not the sender of the data."""
    server = lab.serve()
    target = lab.work / "evil"
    with socket.create_server(("127.0.0.1", 0)) as free:
        source = free.getsockname()[1]

    def send_and_reset() -> bytes:
        with socket.socket() as theirs:
            theirs.bind(("127.0.0.1", source))
            theirs.connect(("127.0.0.1", lab.port))
            theirs.sendall(request(lab.port, "/addnewjob", submission(target)))
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return b"sent"

    server.send_signal(signal.SIGSTOP)
    try:
        assert as_other_user(send_and_reset) == b"sent"
        ours = socket.socket()
        ours.settimeout(HANG_SECONDS)
        ours.bind(("127.0.0.1", source))
        ours.connect(("127.0.0.1", lab.port))
    finally:
        server.send_signal(signal.SIGCONT)
    with ours:
        ours.sendall(request(lab.port, "/availabledevices", Connection="close"))
        assert ours.recv(15) == b"HTTP/1.1 200 OK"
    assert lab.value("/successfuljobs") == lab.value("/scheduledjobs") == []
    assert not target.exists()


def test_several_requests_may_share_a_connection(shared: PeasyLab) -> None:
    answer = exchange(shared.port, request(shared.port) * 3)
    assert answer.count(b"HTTP/1.1 200 ") == 3


def test_non_loopback_address_needs_a_token(lab: PeasyLab) -> None:
    server = lab.launch("-m", "gpupeasy", "server", "--host", "0.0.0.0", "--port", "0",
                        "--logdir", str(lab.logdir))  # fmt: skip
    output = server.communicate()[0]
    assert server.returncode == 2
    assert "--token-file" in output


def test_token_grants_access_to_other_users(lab: PeasyLab) -> None:
    token_file = lab.folder / "token"
    server = lab.launch("-m", "gpupeasy", "server", "--host", "0.0.0.0", "--port", "0",
                        "--logdir", str(lab.logdir), "--token-file", str(token_file))  # fmt: skip
    assert server.stdout is not None
    assert "token" in server.stdout.readline()
    lab.port = int(server.stdout.readline().split("http://0.0.0.0:")[1].split("/")[0])
    assert token_file.stat().st_mode & 0o777 == 0o600
    token = token_file.read_text().strip()

    def status_with(**headers: str) -> bytes:
        return as_other_user(
            lambda: exchange(lab.port, request(lab.port, "/failedjobs", b"", **headers))
        )[9:12]

    password = base64.b64encode(f"me:{token}".encode()).decode()
    assert status_with() == b"401"
    assert status_with(Authorization="Bearer wrong") == b"401"
    assert status_with(Authorization="Basic ???") == b"401"
    assert status_with(Authorization=f"Bearer {token}") == b"200"
    assert status_with(Authorization=f"Basic {password}") == b"200"
    assert status_with(Authorization=f"Bearer {token}", Host="evil") == b"403"
    assert lab.value("/availabledevices") == ["0", "1", "2"]  # the owner needs no token


def test_token_file_that_others_can_read_is_refused(lab: PeasyLab) -> None:
    token_file = lab.folder / "token"
    token_file.write_text("0123456789abcdef0123")
    token_file.chmod(0o644)
    server = lab.launch("-m", "gpupeasy", "gui", "--port", "0", "--token-file", str(token_file))
    assert "chmod 600" in server.communicate()[0]


def test_page_does_not_connect_to_a_server_of_another_user(lab: PeasyLab) -> None:
    """A process that takes the port first could otherwise read every command."""
    if os.getuid() != 0:
        pytest.skip("only root can switch to another user")
    listener = socket.socket()
    port_pipe, ready = os.pipe()
    pid = os.fork()
    if pid == 0:
        become_other()
        theirs = socket.socket()
        theirs.bind(("127.0.0.1", 0))
        theirs.listen()
        os.write(ready, str(theirs.getsockname()[1]).encode())
        connection, _ = theirs.accept()
        os._exit(1 if connection.recv(1) else 0)
    try:
        lab.port = int(os.read(port_pipe, 16))
        lab.show()
        assert "Connection error" in lab.page("/successfuljobs").text
    finally:
        os.kill(pid, 9)
        assert os.waitpid(pid, 0)[1] == 9  # no connection was accepted
        listener.close()


def test_both_servers_stop_at_the_first_ctrl_c(lab: PeasyLab) -> None:
    server = lab.serve()
    gui = lab.show()
    stop(gui, signal.SIGINT)
    stop(server, signal.SIGINT)
    assert (gui.returncode, server.returncode) == (0, 0)
    wait_until(lambda: lab.daemon_pid() is None and lab.runner_pid() is None)


def test_user_of_an_ipv4_mapped_ipv6_connection_is_found(shared: PeasyLab) -> None:
    def exchange_mapped() -> bytes:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as connection:
            connection.connect(("::ffff:127.0.0.1", shared.port))
            connection.sendall(request(shared.port, Connection="close"))
            return b"".join(iter(lambda: connection.recv(65536), b""))

    try:
        mine = exchange_mapped()
    except OSError:
        pytest.skip("needs IPv6")
    assert mine.startswith(b"HTTP/1.1 200 ")
    assert as_other_user(exchange_mapped).startswith(b"HTTP/1.1 401 ")


def test_responses_forbid_framing_and_have_a_content_type(shared: PeasyLab) -> None:
    reply = send_request(shared.port, "GET", "/availabledevices")
    assert reply.headers["Content-Type"] == "application/json"
    assert reply.headers["X-Frame-Options"] == "DENY"
