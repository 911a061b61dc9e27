"""The two servers as ASGI applications: routes, requests (with forms) and responses.

Their handlers block (on a database, on another server), so they run in a thread pool.

Scripts written for the original send no token, so a loopback connection is accepted if the process
at the other end belongs to the user of the server; all other connections need the token. The Host
header must be one of the server's own names, which prevents DNS rebinding, and requests of browsers
must come from the server's own pages.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from email.message import Message
from email.parser import BytesHeaderParser
from functools import partial
from typing import Any, Protocol
from urllib.parse import parse_qs, urlencode

from starlette import requests
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from stoker.record import Record
from stoker.web.http.addresses import host_values
from stoker.web.http.guard_request import GuardRequest, Refusal, refuse_site
from stoker.web.http.http_server import ServerSockets
from stoker.web.http.middleware import Middleware, MiddlewareConfig
from stoker.web.http.peers import own_uids

_BODY_BYTES = 16 << 20
_THREADS = 16
_MAX_FIELDS = 100
_LINE = b"\r\n"
_ANY_ADDRESS = "0.0.0.0"  # scripts of the original connect to it; Linux uses 127.0.0.1
# Forms, styles and scripts of the same origin only, no inline scripts, and no framing.
_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


class Request(Record):
    method: str
    query: dict[str, str]
    body: bytes
    kind: str = ""  # the Content-Type header

    def form(self) -> dict[str, str]:
        return fields_of(self.kind, self.body)

    def json(self) -> Any:
        """The body as JSON, whatever its Content-Type; None if it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


def html(text: str, status: int = 200) -> Response:
    return Response(text.encode("utf-8", "replace"), status, media_type="text/html; charset=utf-8")


def as_json(value: object, status: int = 200) -> Response:
    return Response(json.dumps(value).encode() + b"\n", status, media_type="application/json")


def redirect(path: str, messages: object = None) -> Response:
    if messages is not None:
        path += "?" + urlencode({"messages": json.dumps(messages)})
    return Response(b"", 302, {"Location": path})


# A method, a path whose last part may be `{id}`, and a handler for the request and the ID.
Entry = tuple[str, str, Callable[..., Response]]


class Application(Protocol):
    routes: list[Entry]

    def answer(self, request: Request, work: Callable[[], Response]) -> Response:
        """Call the handler, and turn exceptions into responses."""


def make_app(application: Application, guard: Guard) -> ASGIApp:
    pool = ThreadPoolExecutor(_THREADS)

    def route(path: str, handlers: dict[str, Callable[..., Response]]) -> Route:
        async def endpoint(request: requests.Request) -> Response:
            kind = request.headers.get("content-type", "")
            query = encoded(request.url.query)
            parsed = Request(request.method, query, await request.body(), kind)
            handler = handlers["GET" if request.method == "HEAD" else request.method]
            work = partial(handler, parsed, *request.path_params.values())
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(pool, application.answer, parsed, work)

        return Route(path, endpoint, methods=list(handlers))  # Starlette adds HEAD to GET

    paths: dict[str, dict[str, Callable[..., Response]]] = {}
    for method, path, handler in application.routes:
        paths.setdefault(path, {})[method] = handler
    app = Starlette(
        routes=[route(*entry) for entry in paths.items()],
        exception_handlers={HTTPException: _http_error},
    )
    app.router.redirect_slashes = False
    return Middleware(app, guard, _MIDDLEWARE_CONFIG)


async def _http_error(request: requests.Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    response = _failed(str(error.detail).capitalize(), error.status_code)
    response.headers.update(error.headers or {})  # e.g. Allow
    return response


def _refuse(refusal: Refusal) -> Response:
    response = _failed(refusal.message, refusal.status)
    if refusal.status == 401 and refusal.hint is not None:
        response.headers["WWW-Authenticate"] = 'Basic realm="gpupeasy"'
    return response


def _failed(message: str, status: int) -> Response:
    return as_json({"status": "failed", "message": message}, status)


_MIDDLEWARE_CONFIG = MiddlewareConfig(
    # With `no-referrer`, browsers would send `Origin: null` with the forms of our own pages.
    {"Content-Security-Policy": _POLICY, "Referrer-Policy": "same-origin"},
    lambda path: _BODY_BYTES,
    _refuse,
    lambda error: _failed(error.message, 200),
)


# -- forms -----------------------------------------------------------------------------------------


def fields_of(kind: str, body: bytes) -> dict[str, str]:
    """The first value of each field; `kind` is the Content-Type. Empty if it is not a form.

    >>> fields_of("", b"a=1&b=x+y&a=2")
    {'a': '1', 'b': 'x y'}
    >>> lines = (b"--X", b'Content-Disposition: form-data; name="a"', b"", b"1", b"2", b"--X--")
    >>> fields_of("multipart/form-data; boundary=X", b"\\r\\n".join(lines))
    {'a': '1\\r\\n2'}
    """
    if kind.partition(";")[0].strip().lower() == "multipart/form-data":
        return _multipart(kind, body)
    return encoded(body.decode("utf-8", "replace"))


def encoded(text: str) -> dict[str, str]:
    """The fields of a query string or of a URL-encoded form."""
    try:
        found = parse_qs(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError:
        return {}
    return {key: values[0] for key, values in found.items()}


def _multipart(kind: str, body: bytes) -> dict[str, str]:
    head = Message()
    head["Content-Type"] = kind
    boundary = head.get_boundary("")
    if not boundary:
        return {}
    found: dict[str, str] = {}
    for name, content in _parts(body, boundary.encode("utf-8", "surrogateescape")):
        found.setdefault(name, content.decode("utf-8", "replace"))
    return found


def _parts(body: bytes, boundary: bytes) -> Iterator[tuple[str, bytes]]:
    """The parts, split by hand: the `email` parser takes seconds for a few megabytes."""
    pieces = (_LINE + body).split(_LINE + b"--" + boundary, _MAX_FIELDS + 1)
    for piece in pieces[1 : _MAX_FIELDS + 1]:
        if piece.startswith(b"--"):
            return
        lines, _, content = piece.partition(_LINE + _LINE)
        head = BytesHeaderParser().parsebytes(lines.lstrip())
        name = head.get_param("name", header="Content-Disposition")
        if isinstance(name, tuple):  # with a character set (RFC 2231)
            name = name[2]
        if isinstance(name, str):
            # The header was decoded as ASCII, but names may be UTF-8.
            yield name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), content


# -- access ----------------------------------------------------------------------------------------


class Guard:
    def __init__(self, hosts: frozenset[str], token: str | None) -> None:
        self._hosts = hosts
        self._token = token

    def refuse(self, request: GuardRequest) -> Refusal | None:
        if not request.path.startswith("/"):
            return Refusal(400, "usage", "Bad request")
        if request.headers.get("host", "").lower() not in self._hosts:
            return Refusal(403, "wrong_host", "The Host header does not name this server")
        if request.uid not in own_uids() and not self._has_right_token(request.headers):
            text = "Only the user who started this server can use it without a token"
            return Refusal(401, "no_token", text, None if self._token is None else "basic")
        return refuse_site(request, self._hosts, opens_by_link=True)

    def is_suspect(self, request: GuardRequest) -> bool:
        return False  # the token is too long to be guessed

    def _has_right_token(self, headers: Mapping[str, str]) -> bool:
        if self._token is None:
            return False
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "basic":  # the login dialog of a browser; the user name is ignored
            given = _password(given)
        elif kind.lower() != "bearer":
            return False
        return hmac.compare_digest(given.strip().encode(), self._token.encode())


def _password(text: str) -> str:
    try:
        pair = base64.b64decode(text.strip(), validate=True).decode()
    except ValueError:
        return ""
    return pair.partition(":")[2]


def own_hosts(listening: ServerSockets, others: tuple[str, ...] = ()) -> frozenset[str]:
    """The accepted Host headers; `others` are names, or NAME:PORT for the end of a tunnel."""
    ports = {name.lower() for name in others if ":" in name}
    names = [name for name in others if ":" not in name]
    if listening.addresses.is_loopback:
        names.append(_ANY_ADDRESS)
    return host_values(listening.names(*names), listening.port) | ports
