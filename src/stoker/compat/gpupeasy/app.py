"""The two servers as applications behind the gate: routes, requests, answers.

What they do blocks (a database, another server), so that it is done by a few threads.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol
from urllib.parse import urlencode

from starlette import requests
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from stoker.compat.gpupeasy.auth import Guard
from stoker.compat.gpupeasy.forms import encoded, fields_of
from stoker.core.record import Record
from stoker.http.guard_request import Refusal
from stoker.http.middleware import Middleware, MiddlewareConfig

_BODY_BYTES = 16 << 20
_THREADS = 16
# Forms and fragments of our own pages only; no script but our own file, and nobody frames us.
_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


class Request(Record):
    method: str
    query: dict[str, str]
    body: bytes
    kind: str = ""  # what the body calls itself

    def form(self) -> dict[str, str]:
        return fields_of(self.kind, self.body)

    def json(self) -> Any:
        """What was sent as JSON, whatever it calls itself; None when it is none."""
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


# A method, a path whose last part may be `{id}`, and the work: it is given the request and the id.
Entry = tuple[str, str, Callable[..., Response]]


class Application(Protocol):
    routes: list[Entry]

    def answer(self, request: Request, work: Callable[[], Response]) -> Response:
        """Do the work; what goes wrong becomes an answer, too."""


def make_app(application: Application, guard: Guard) -> ASGIApp:
    pool = ThreadPoolExecutor(_THREADS)

    def route(path: str, works: dict[str, Callable[..., Response]]) -> Route:
        methods = sorted({*works, "OPTIONS", *(["HEAD"] if "GET" in works else [])})

        async def endpoint(request: requests.Request) -> Response:
            if request.method == "OPTIONS":
                return Response(b"", 200, {"Allow": ", ".join(methods)})
            kind = request.headers.get("content-type", "")
            asked = Request(request.method, encoded(request.url.query), await request.body(), kind)
            work = works["GET" if request.method == "HEAD" else request.method]
            do = partial(work, asked, *request.path_params.values())
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(pool, application.answer, asked, do)

        return Route(path, endpoint, methods=methods)

    paths: dict[str, dict[str, Callable[..., Response]]] = {}
    for method, path, work in application.routes:
        paths.setdefault(path, {})[method] = work
    app = Starlette(
        routes=[route(*entry) for entry in paths.items()],
        exception_handlers={HTTPException: _unknown},
    )
    app.router.redirect_slashes = False
    return Middleware(app, guard, _MANNERS)


async def _unknown(request: requests.Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    answer = _failed(str(error.detail).capitalize(), error.status_code)
    answer.headers.update(error.headers or {})  # which methods there are
    return answer


def _refuse(why: Refusal) -> Response:
    answer = _failed(why.message, why.status)
    if why.status == 401 and why.hint is not None:
        answer.headers["WWW-Authenticate"] = 'Basic realm="gpupeasy"'
    return answer


def _failed(message: str, status: int) -> Response:
    return as_json({"status": "failed", "message": message}, status)


_MANNERS = MiddlewareConfig(
    # With `no-referrer`, browsers would say that our own forms come from nowhere.
    {"Content-Security-Policy": _POLICY, "Referrer-Policy": "same-origin"},
    lambda path: _BODY_BYTES,
    _refuse,
    lambda error: _failed(error.message, 200),
)
