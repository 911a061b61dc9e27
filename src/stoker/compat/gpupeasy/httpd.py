"""HTTP for the two servers: connections, limits, time-outs, answers. No framework.

Every connection has a thread of its own, and there are only so many. A request has to arrive within
its time, however slowly its bytes come, and nothing of it is acted upon before the guard has seen
its head.
"""

from __future__ import annotations

import io
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from stoker.compat.gpupeasy.guard import Guard, is_own_connection
from stoker.core.record import Record

_HEAD_BYTES = 64 << 10
_BODY_BYTES = 16 << 20
_HEAD_SECONDS = 10.0
_BODY_SECONDS = 60.0
_IDLE_SECONDS = 30.0
_FIELDS = 100
_CONNECTIONS = 64
_STRANGERS = 8  # so that other users cannot take all the places of our own
# Forms and fragments of our own pages only; no script but our own file, and nobody frames us.
_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # `no-referrer` would make our own forms come from nowhere
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Request(Record):
    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: bytes

    def form(self) -> dict[str, str]:
        return _fields(self.body.decode("utf-8", "replace"))

    def json(self) -> Any:
        """What was sent as JSON, whatever it calls itself; None when it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


class Response(Record):
    body: bytes
    kind: str = "text/html; charset=utf-8"
    status: int = 200
    location: str | None = None


def html(text: str, status: int = 200) -> Response:
    return Response(text.encode("utf-8", "replace"), status=status)


def as_json(value: object, status: int = 200) -> Response:
    return Response(json.dumps(value).encode() + b"\n", "application/json", status)


def redirect(path: str, messages: object = None) -> Response:
    if messages is not None:
        path += "?" + urlencode({"messages": json.dumps(messages)})
    return Response(b"", status=302, location=path)


# What answers a request: a method, a path whose last part may be `<id>`, and the work itself.
Route = tuple[str, str, Callable[..., Response]]


class Routes:
    """Finds who answers a request."""

    def __init__(self, routes: list[Route]) -> None:
        self._routes = routes

    def find(self, method: str, path: str) -> tuple[Callable[..., Response], list[str]] | list[str]:
        """The work and its arguments, or the methods that the path would allow."""
        allowed = []
        for wanted, pattern, work in self._routes:
            arguments = _match(pattern, path)
            if arguments is not None:
                if wanted == method or (wanted == "GET" and method == "HEAD"):
                    return work, arguments
                allowed.append(wanted)
        return allowed


def _match(pattern: str, path: str) -> list[str] | None:
    head, mark, _ = pattern.partition("<")
    if not mark:
        return [] if path == pattern else None
    rest = path[len(head) :]
    return [rest] if path.startswith(head) and rest and "/" not in rest else None


class Site(ThreadingMixIn, HTTPServer):
    """Listens; `application` opens, for each connection, what turns requests into answers."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(
        self,
        address: str,
        port: int,
        application: Callable[[], AbstractContextManager[Callable[[Request], Response]]],
    ) -> None:
        self.application = application
        self.guard: Guard | None = None  # once the port is known
        self._own = threading.BoundedSemaphore(_CONNECTIONS)
        self._strangers = threading.BoundedSemaphore(_STRANGERS)
        super().__init__((address, port), _Connection)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def server_bind(self) -> None:
        # Not HTTPServer's, which asks a name server for our own name.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.port

    def process_request(self, request: Any, client_address: Any) -> None:
        try:
            is_own = is_own_connection(request)
        except OSError:
            is_own = False
        places = self._own if is_own else self._strangers
        if not places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        worker = threading.Thread(
            target=self._serve, args=(request, client_address, is_own, places), daemon=True
        )
        worker.start()

    def _serve(
        self,
        request: socket.socket,
        client_address: Any,
        is_own: bool,
        places: threading.BoundedSemaphore,
    ) -> None:
        try:
            _Connection(request, client_address, self, is_own)
        except OSError:
            pass  # it went away
        finally:
            self.shutdown_request(request)
            places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections break; that is nobody's business."""


class _Slow(io.RawIOBase):
    """Reads a connection until a moment in time, and so many bytes."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._until = 0.0
        self._left = 0

    def allow(self, seconds: float, count: int) -> None:
        self._until, self._left = time.monotonic() + seconds, count

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._until - time.monotonic()
        if left <= 0 or self._left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        count = self._connection.recv_into(memoryview(buffer)[: self._left])
        self._left -= count
        return count


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "GPUPeasy", ""  # and not which Python
    server: Site

    def __init__(self, request: Any, address: Any, server: Site, is_own: bool = False) -> None:
        self._is_own = is_own
        super().__init__(request, address, server)

    def setup(self) -> None:
        super().setup()
        self._slow = _Slow(self.connection)
        self.rfile = io.BufferedReader(self._slow)

    def handle(self) -> None:
        self.close_connection = False
        with self.server.application() as self._answer:
            seconds = _HEAD_SECONDS
            while not self.close_connection:
                # An idle connection may wait a while; a request that has begun may not.
                self._slow.allow(seconds, _HEAD_BYTES)
                self.handle_one_request()
                seconds = _IDLE_SECONDS

    def handle_expect_100(self) -> bool:
        return True  # `continue` is for the guard to say

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):  # every method comes here; the routes know which are allowed
            return self._do
        raise AttributeError(name)

    def _do(self) -> None:
        headers = {key.lower(): value for key, value in self.headers.items()}
        assert self.server.guard is not None
        if len(self.headers.get_all("host", [])) != 1 or not self.path.startswith("/"):
            self._refuse(400, "Bad request")
            return
        refusal = self.server.guard.refuse(self.command, headers, self._is_own)
        if refusal is not None:
            self._refuse(*refusal)
            return
        length = headers.get("content-length", "0")
        if "transfer-encoding" in headers or not (length.isascii() and length.isdigit()):
            self._refuse(411, "Content-Length is missing")
            return
        if len(length) > 12 or int(length) > _BODY_BYTES:
            self._refuse(413, "The request is too long")
            return
        if headers.get("expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        self._slow.allow(_BODY_SECONDS, int(length))
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            self.close_connection = True
            return
        parts = urlsplit(self.path)
        request = Request(self.command, unquote(parts.path), _fields(parts.query), headers, body)
        self._send(self._answer(request))

    def _refuse(self, status: int, message: str) -> None:
        """Say no, and hear the rest out for a moment: who still talks would miss the answer."""
        self.close_connection = True
        self._send(as_json({"status": "failed", "message": message}, status))
        try:
            self.connection.shutdown(socket.SHUT_WR)
            self._slow.allow(1.0, 1 << 20)
            while self.rfile.read1(1 << 16):
                pass
        except OSError:
            pass

    def _send(self, response: Response) -> None:
        self.connection.settimeout(_BODY_SECONDS)
        self.send_response(response.status)
        self.send_header("Content-Type", response.kind)
        self.send_header("Content-Length", str(len(response.body)))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if response.location is not None:
            self.send_header("Location", response.location)
        if response.status == 401 and self.server.guard and self.server.guard.has_token:
            self.send_header("WWW-Authenticate", 'Basic realm="gpupeasy"')
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Called for what is no HTTP at all."""
        self.close_connection = True
        self.command = self.command or "GET"
        self._send(as_json({"status": "failed", "message": "Bad request"}, code))

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged: their addresses hold what users type."""


def answer_with(routes: Routes, request: Request) -> Response:
    """The answer of whoever is responsible for the path."""
    found = routes.find(request.method, request.path)
    if isinstance(found, list):
        if found:
            return as_json({"status": "failed", "message": "Method not allowed"}, 405)
        return as_json({"status": "failed", "message": "Not found"}, 404)
    work, arguments = found
    return work(request, *arguments)


@contextmanager
def serving(site: Site) -> Iterator[None]:
    """Answer in a thread until the end of the block."""
    worker = threading.Thread(target=site.serve_forever, args=(0.1,), daemon=True)
    worker.start()
    try:
        yield
    finally:
        site.shutdown()
        site.server_close()


def _fields(text: str) -> dict[str, str]:
    """The fields of a query or a form; the first of each name."""
    try:
        found = parse_qs(text, keep_blank_values=True, max_num_fields=_FIELDS)
    except ValueError:
        return {}
    return {key: values[0] for key, values in found.items()}
