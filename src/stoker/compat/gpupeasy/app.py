"""The two servers as ASGI applications: routes, requests (with forms) and responses.

Their handlers block (on a database, on another server), so they run in a thread pool.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
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

from stoker.compat.gpupeasy.auth import Guard
from stoker.record import Record
from stoker.web.http.guard_request import Refusal
from stoker.web.http.middleware import Middleware, MiddlewareConfig

_BODY_BYTES = 16 << 20
_THREADS = 16
_MAX_FIELDS = 100
_LINE = b"\r\n"
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
        methods = sorted({*handlers, "OPTIONS", *(["HEAD"] if "GET" in handlers else [])})

        async def endpoint(request: requests.Request) -> Response:
            if request.method == "OPTIONS":
                return Response(b"", 200, {"Allow": ", ".join(methods)})
            kind = request.headers.get("content-type", "")
            query = encoded(request.url.query)
            parsed = Request(request.method, query, await request.body(), kind)
            handler = handlers["GET" if request.method == "HEAD" else request.method]
            work = partial(handler, parsed, *request.path_params.values())
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(pool, application.answer, parsed, work)

        return Route(path, endpoint, methods=methods)

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
