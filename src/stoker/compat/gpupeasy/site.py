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
from urllib.parse import parse_qs, urlencode

from starlette import requests
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from stoker.compat.gpupeasy.guard import Guard
from stoker.core.record import Record
from stoker.http.asked import Refusal
from stoker.http.gate import Gate, Manners

_BODY_BYTES = 16 << 20
_FIELDS = 100
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

    def form(self) -> dict[str, str]:
        return _fields(self.body.decode("utf-8", "replace"))

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

    def route(method: str, path: str, work: Callable[..., Response]) -> Route:
        async def endpoint(request: requests.Request) -> Response:
            asked = Request(request.method, _fields(request.url.query), await request.body())
            do = partial(work, asked, *request.path_params.values())
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(pool, application.answer, asked, do)

        return Route(path, endpoint, methods=[method])

    app = Starlette(
        routes=[route(*entry) for entry in application.routes],
        exception_handlers={HTTPException: _unknown},
    )
    app.router.redirect_slashes = False
    return Gate(app, guard, _MANNERS)


async def _unknown(request: requests.Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _failed(str(error.detail).capitalize(), error.status_code)


def _refuse(why: Refusal) -> Response:
    answer = _failed(why.message, why.status)
    if why.status == 401 and why.hint is not None:
        answer.headers["WWW-Authenticate"] = 'Basic realm="gpupeasy"'
    return answer


def _failed(message: str, status: int) -> Response:
    return as_json({"status": "failed", "message": message}, status)


_MANNERS = Manners(
    # With `no-referrer`, browsers would say that our own forms come from nowhere.
    {"Content-Security-Policy": _POLICY, "Referrer-Policy": "same-origin"},
    lambda path: _BODY_BYTES,
    _refuse,
    lambda error: _failed(error.message, 200),
)


def _fields(text: str) -> dict[str, str]:
    """The fields of a query or a form; the first of each name."""
    try:
        found = parse_qs(text, keep_blank_values=True, max_num_fields=_FIELDS)
    except ValueError:
        return {}
    return {key: values[0] for key, values in found.items()}
