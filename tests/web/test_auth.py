"""Authentication, protection against other sites and users, security headers and limits."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tests.web.site import JSON, Site, changed_job

READS = ("/api/overview", "/api/jobs", "/api/events", "/api/jobs/1/log", "/api/sweeps")
CHANGE = json.dumps({"action": "start"}).encode()


@pytest.fixture
def site(shared_site: Site) -> Site:
    return shared_site


@pytest.mark.parametrize("path", READS)
def test_api_refuses_requests_without_the_token(site: Site, path: str) -> None:
    reply = site.ask("GET", path, token=None)
    assert (reply.status, reply.code) == (401, "no_token")
    reply = site.ask("POST", "/api/daemon/act", CHANGE, {"Content-Type": JSON}, token=None)
    assert reply.status == 401


@pytest.mark.parametrize(
    "value",
    ["Bearer wrong", "Bearer ", "Basic dTpw", "Bearer \xff", "bearer", "Bearer " + "x" * 4000],
)
def test_wrong_token_is_refused(new_site: Callable[..., Site], value: str) -> None:
    site = new_site()
    reply = site.ask("GET", "/api/overview", headers={"Authorization": value}, token=None)
    assert (reply.status, reply.code) == (401, "wrong_token")
    almost = f"Bearer {site.token[:-1]}"
    assert site.ask("GET", "/api/overview", headers={"Authorization": almost}).status == 401


def test_static_files_contain_no_secret_and_need_no_token(site: Site) -> None:
    for path in ("/", "/healthz", "/docs", "/openapi.json"):
        reply = site.ask("GET", path, token=None)
        assert reply.status == 200
        assert site.token.encode() not in reply.body
    assert site.ask("GET", "/healthz", token=None).json == {"ok": True}


# -- the cookie -----------------------------------------------------------------------------------


def test_token_is_exchanged_for_a_strict_cookie(site: Site) -> None:
    body = json.dumps({"token": site.token}).encode()
    reply = site.ask("POST", "/api/login", body, {"Content-Type": JSON}, token=None)
    assert reply.status == 204
    cookie = reply.headers["set-cookie"]
    assert cookie.startswith(f"stoker_{site.place.port}=")
    assert all(word in cookie for word in ("HttpOnly", "SameSite=Strict", "Path=/"))
    assert site.token not in cookie
    sent = {"Cookie": f"other=1; {cookie.partition(';')[0]}"}
    assert site.ask("GET", "/api/overview", headers=sent, token=None).status == 200


def test_change_with_a_cookie_needs_a_header_that_forms_cannot_send(site: Site) -> None:
    cookie = {"Cookie": site.login(), "Content-Type": JSON}
    reply = site.ask("POST", "/api/daemon/act", CHANGE, cookie, token=None)
    assert (reply.status, reply.code) == (403, "no_header")
    sent = {**cookie, "X-Stoker": "1"}
    assert site.ask("POST", "/api/daemon/act", CHANGE, sent, token=None).status == 200


def test_cookie_is_invalid_once_altered_or_logged_out(site: Site) -> None:
    cookie = site.login()
    name, _, value = cookie.partition("=")
    chance, end, signature = value.split(".")
    for wrong in (
        f"{chance}.{int(end) + 1}.{signature}", f"x{value}", f"{chance}.{end}.", "", ".", "..",
        f"{chance}.{end}.{signature[:-2]}", site.token,
    ):  # fmt: skip
        sent = {"Cookie": f"{name}={wrong}"}
        assert site.ask("GET", "/api/overview", headers=sent, token=None).status == 401, wrong
    sent = {"Cookie": cookie, "X-Stoker": "1", "Content-Type": JSON}
    assert site.ask("POST", "/api/logout", b"{}", sent, token=None).status == 204
    assert site.ask("GET", "/api/overview", headers={"Cookie": cookie}, token=None).status == 401


def test_logged_out_cookie_stays_invalid_after_a_restart(new_site: Callable[..., Site]) -> None:
    site = new_site()
    logged_out, kept = site.login(), site.login()
    sent = {"Cookie": logged_out, "X-Stoker": "1", "Content-Type": JSON}
    assert site.ask("POST", "/api/logout", b"{}", sent, token=None).status == 204
    site.kill()
    site.start()
    for cookie, status in ((logged_out, 401), (kept, 200)):
        reply = site.ask("GET", "/api/overview", headers={"Cookie": cookie}, token=None)
        assert reply.status == status


def test_stream_ends_when_its_cookie_is_logged_out(new_site: Callable[..., Site]) -> None:
    site = new_site()
    cookie = site.login()
    with site.stream(cookie=cookie) as events:
        sent = {"Cookie": cookie, "X-Stoker": "1", "Content-Type": JSON}
        assert site.ask("POST", "/api/logout", b"{}", sent, token=None).status == 204
        job = site.lab.submit("--hold", "true")
        with pytest.raises(EOFError):
            events.until(changed_job(job, "held"))


def test_client_that_guesses_tokens_is_blocked(new_site: Callable[..., Site]) -> None:
    site = new_site()
    sent = {"Content-Type": JSON}
    wrong = [
        site.ask("POST", "/api/login", b'{"token": "guess"}', sent, token=None) for _ in range(12)
    ]
    assert [reply.status for reply in wrong] == [401] * 10 + [429] * 2
    assert wrong[-1].headers["retry-after"]
    assert site.ask("GET", "/api/overview", token="another guess").status == 429


def test_wrong_guesses_do_not_lock_out_the_owner(new_site: Callable[..., Site]) -> None:
    site = new_site()
    for _ in range(11):
        site.ask("GET", "/api/overview", token="an old token")
    assert site.ask("GET", "/api/overview", token="an old token").status == 429
    assert site.overview()["read_only"] is False
    assert site.login()


def test_many_concurrent_guesses_are_refused_unchecked(new_site: Callable[..., Site]) -> None:
    site = new_site()
    site.overview()  # the queue exists
    for _ in range(10):
        site.ask("GET", "/api/overview", token="guess")
    with ThreadPoolExecutor(20) as pool:
        found = list(pool.map(lambda _: site.get("/api/overview").status, range(20)))
    assert sorted(found) == [200] * found.count(200) + [429] * found.count(429)
    assert 429 in found


# -- other hosts, sites, users --------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "localhost:1", "127.0.0.1:{port}.evil",
     "localhost.evil:{port}", "0.0.0.0:{port}", "", "[::1]", "127.0.0.1:{port},evil"],
)  # fmt: skip
def test_rebound_host_name_is_refused(site: Site, host: str) -> None:
    sent = {"Host": host.format(port=site.place.port)}
    for path in ("/api/overview", "/"):
        reply = site.ask("GET", path, headers=sent)
        assert (reply.status, reply.code) == (403, "wrong_host")


def test_localhost_is_a_name_of_the_server(site: Site) -> None:
    sent = {"Host": f"localhost:{site.place.port}", "Origin": f"http://localhost:{site.place.port}"}
    assert site.ask("GET", "/api/overview", headers=sent).status == 200


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://127.0.0.1", "http://127.0.0.1:1", "", "file://",
     "https://127.0.0.1:{port}", "http://127.0.0.1:{port}.evil"],
)  # fmt: skip
def test_foreign_origin_is_refused(site: Site, origin: str) -> None:
    sent = {"Origin": origin.format(port=site.place.port), "Content-Type": JSON}
    for method, path, body in (("GET", "/api/overview", None), ("POST", "/api/daemon/act", CHANGE)):
        reply = site.ask(method, path, body, sent)
        assert (reply.status, reply.code) == (403, "other_site")


@pytest.mark.parametrize("fetch", ["cross-site", "same-site"])
def test_other_sites_get_static_files_only(site: Site, fetch: str) -> None:
    cookie = {
        "Cookie": site.login(),
        "X-Stoker": "1",
        "Content-Type": JSON,
        "Sec-Fetch-Site": fetch,
    }
    assert site.ask("POST", "/api/daemon/act", CHANGE, cookie, token=None).code == "other_site"
    assert site.ask("GET", "/api/overview", headers=cookie, token=None).code == "other_site"
    link = {"Sec-Fetch-Site": fetch, "Sec-Fetch-Mode": "navigate"}
    assert site.ask("GET", "/", headers=link, token=None).status == 200
    assert site.ask("GET", "/api/overview", headers={**cookie, **link}, token=None).status == 403
    script = {"Sec-Fetch-Site": fetch, "Sec-Fetch-Mode": "no-cors"}
    assert site.ask("GET", "/", headers=script, token=None).status == 403


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "",
        "application/jsonp",
        "text/json",
    ],
)
def test_change_must_be_json(site: Site, kind: str) -> None:
    for method, path in (
        ("POST", "/api/daemon/act"),
        ("PATCH", "/api/jobs/1"),
        ("POST", "/api/login"),
    ):
        reply = site.ask(method, path, CHANGE, {"Content-Type": kind})
        assert (reply.status, reply.code) == (415, "not_json")


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "HEAD"])
def test_other_methods_are_refused(site: Site, method: str) -> None:
    sent = {"Content-Type": JSON, "Access-Control-Request-Method": "POST"}
    reply = site.ask(method, "/api/jobs", None, sent)
    assert reply.status == 405
    assert not any(name.startswith("access-control") for name in reply.headers)


_AS_NOBODY = """
import encodings.idna, http.client, os, sys
os.setgid(65534); os.setuid(65534)
line = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
for path in ("/", "/api/overview", "/healthz"):
    line.request("GET", path, headers={"Authorization": "Bearer " + sys.argv[2]})
    answer = line.getresponse()
    print(answer.status, "other_user" in answer.read().decode())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_other_user_is_refused_even_with_the_right_token(site: Site) -> None:
    words = [sys.executable, "-c", _AS_NOBODY, str(site.place.port), site.token]
    done = subprocess.run(words, capture_output=True, text=True, cwd="/")
    assert done.stdout.splitlines() == ["403 True"] * 3, done.stderr


# -- responses to browsers ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/", "/api/overview", "/docs", "/nothing", "/api/nothing", "/healthz"]
)
def test_every_response_has_security_headers(site: Site, path: str) -> None:
    for token in ("", None):
        headers = site.ask("GET", path, token=token).headers
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy and "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "cache-control" in headers
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


XSS = (
    "<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "</script><script>alert(1)//",
    "javascript:alert(1)", "\u2028\u2029</title>", "{{constructor.constructor('alert(1)')()}}",
)  # fmt: skip


def test_hostile_text_is_returned_as_json_text_only(site: Site) -> None:
    for text in XSS:
        job = site.submit(
            f"printf %s '{text.replace(chr(39), '')}'", name=text, tags=[text], hold=True
        )
        for path in (
            f"/api/jobs/{job}",
            "/api/overview",
            f"/api/jobs?q={job}",
            "/api/jobs?limit=1",
        ):
            reply = site.get(path)
            assert reply.headers["content-type"] == JSON
            assert reply.body.isascii()
        assert site.ok(f"/api/jobs/{job}")["job"]["name"] == text
    reply = site.get("/api/sweeps/%3Cscript%3Ealert(1)%3C%2Fscript%3E")
    assert (reply.status, reply.headers["content-type"]) == (404, JSON)


# -- limits ---------------------------------------------------------------------------------------


def test_large_body_is_refused_before_it_is_read(site: Site) -> None:
    sent = {"Content-Type": JSON, "Content-Length": str(64 << 20)}
    with closing(socket.create_connection(("127.0.0.1", site.place.port))) as line:
        lines = [f"{name}: {value}" for name, value in sent.items()]
        start = ["POST /api/jobs HTTP/1.1", f"Host: {site.host}"]
        lines.append(f"Authorization: Bearer {site.token}")
        line.sendall("\r\n".join([*start, *lines, "", ""]).encode())
        assert line.recv(12) == b"HTTP/1.1 413"


def test_body_without_a_length_is_refused_once_it_is_too_large(site: Site) -> None:
    with closing(socket.create_connection(("127.0.0.1", site.place.port))) as line:
        line.sendall((
            f"POST /api/jobs HTTP/1.1\r\nHost: {site.host}\r\nContent-Type: {JSON}\r\n"
            f"Authorization: Bearer {site.token}\r\nTransfer-Encoding: chunked\r\n\r\n"
        ).encode())  # fmt: skip
        chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
        try:
            for _ in range(64):
                line.sendall(chunk)
        except OSError:
            pass  # the server has closed the connection
        try:
            assert line.recv(12) == b"HTTP/1.1 413"
        except ConnectionResetError:
            pass


def test_large_header_is_refused(site: Site) -> None:
    with closing(socket.create_connection(("127.0.0.1", site.place.port))) as line:
        line.sendall(f"GET / HTTP/1.1\r\nHost: {site.host}\r\nX: {'x' * 40_000}\r\n\r\n".encode())
        assert line.recv(12) in (b"HTTP/1.1 400", b"HTTP/1.1 431")


def test_connection_without_a_header_is_closed(site: Site) -> None:
    with closing(socket.create_connection(("127.0.0.1", site.place.port))) as line:
        line.sendall(b"GET / HTTP/1.1\r\nHost:")
        try:
            assert line.recv(1) == b""
        except ConnectionResetError:
            pass


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'"x"', b"{}" * 9, b"\xff\xfe", b"[" * 5000]
)
def test_invalid_json_is_a_usage_error(site: Site, body: bytes) -> None:
    reply = site.ask("POST", "/api/jobs/act", body, {"Content-Type": JSON})
    assert (reply.status, reply.code) == (400, "usage"), reply


# -- read-only ------------------------------------------------------------------------------------


def test_read_only_server_refuses_changes(new_site: Callable[..., Site]) -> None:
    site = new_site("--read-only")
    job = site.lab.submit("--hold", "true")
    assert site.overview()["read_only"] is True
    for path, content in (
        ("/api/jobs", {"command": "true"}), ("/api/jobs", {"command": "true", "dry_run": True}),
        ("/api/batch", {"text": "true"}), ("/api/sweeps", {"command": "x", "parameters": {}}),
        ("/api/jobs/act", {"action": "cancel", "ids": [job]}),
        ("/api/daemon/act", {"action": "start"}),
        ("/api/gpus/SIM-0/act", {"action": "drain"}), ("/api/sweeps/x/act", {"action": "stop"}),
    ):  # fmt: skip
        reply = site.post(path, content)
        assert (reply.status, reply.code) == (403, "read_only"), path
    assert site.post(f"/api/jobs/{job}", {"priority": 1}, "PATCH").code == "read_only"
    assert site.lab.states() == {job: "held"}
    cookie = site.login()  # login and logout are still allowed
    sent = {"Cookie": cookie, "X-Stoker": "1", "Content-Type": JSON}
    assert site.ask("POST", "/api/logout", b"{}", sent, token=None).status == 204
