"""ASGI middleware around every server: calls the guard, limits request sizes, adds headers.

The body of a request is read completely, within its limits, before the application is called.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stoker.errors import Error
from stoker.record import Record
from stoker.web.http.guard_request import CHANGES, TOO_MANY, Guard, GuardRequest, Refusal

HEADER_BYTES = 16 << 10
_BODY_SECONDS = 30.0
_GUESS_DELAY_SECONDS = 1.0
_DRAIN_SECONDS = 1.0
_MAX_DELAYED = 8
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class MiddlewareConfig(Record):
    """The settings that differ between servers."""

    headers: Mapping[str, str]  # on every response, in addition to those of all servers
    max_bytes: Callable[[str], int]  # largest request body, by path
    refuse: Callable[[Refusal], Response]
    fail: Callable[[Error], Response]


class _Refused(Exception):
    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal


class Middleware:
    def __init__(self, app: ASGIApp, guard: Guard, config: MiddlewareConfig) -> None:
        self._app = app
        self._guard = guard
        self._config = config
        given = {**_HEADERS, **config.headers}
        self._headers = [(name.encode(), value.encode()) for name, value in given.items()]
        self._delayed = 0
        self._log = logging.getLogger("stoker.web.http")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        send_with_headers = _WithHeaders(send, self._headers)
        try:
            headers = _headers(scope)
            if _size(scope) > HEADER_BYTES:
                raise _Refused(Refusal(431, "too_large", "the headers are too large"))
            request = GuardRequest(
                scope["method"], scope["path"], headers, _source(scope), await _uid(scope)
            )
            scope["stoker.request"] = request
            if self._guard.is_suspect(request):
                await self._delay()
            refused = self._guard.refuse(request)
            if refused is not None:
                raise _Refused(refused)
            if request.method in CHANGES:
                limit = self._config.max_bytes(request.path)
                receive = _Replay(await _body(headers, receive, limit), receive)
            await self._app(scope, receive, send_with_headers)
        except _Refused as error:
            # Close the connection: further requests on it are not read.
            await self._config.refuse(error.refusal)(
                scope, receive, _Closing(send_with_headers, receive)
            )
        except Error as error:
            await self._config.fail(error)(scope, receive, send_with_headers)
        except Exception:
            self._log.exception("%s %s", scope["method"], scope["path"])
            if send_with_headers.is_complete:
                return
            if send_with_headers.is_started:
                raise
            broken = Refusal(500, "broken", "internal server error", "see the log of the server")
            await self._config.refuse(broken)(scope, receive, send_with_headers)

    async def _delay(self) -> None:
        """Delay the request, so that few tokens can be tried per second. A request with the right
        token is delayed too, but not refused: a forgotten script with an old token must not lock
        out its owner."""
        if self._delayed >= _MAX_DELAYED:
            raise _Refused(TOO_MANY)
        self._delayed += 1
        try:
            await asyncio.sleep(_GUESS_DELAY_SECONDS)
        finally:
            self._delayed -= 1


class _WithHeaders:
    """A `send` that adds the configured headers to every response."""

    def __init__(self, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        self._send = send
        self._headers = headers
        self.is_started = self.is_complete = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            self.is_complete = not message.get("more_body", False)
        elif message["type"] == "http.response.start":
            self.is_started = True
            # In title case: old scripts search for `Location`.
            headers = [(name.title(), value) for name, value in message.get("headers", ())]
            if not any(name == b"Cache-Control" for name, _ in headers):
                headers.append((b"Cache-Control", b"no-store"))
            given = {name for name, _ in headers}  # a response may have a stricter policy
            added = [one for one in self._headers if one[0] not in given]
            message = {**message, "headers": [*headers, *added]}
        await self._send(message)


class _Closing:
    """A `send` for the last response of a connection.

    It reads the rest of the request for up to a second before the connection closes: closing a
    socket with unread data sends RST, and the client may lose the response.
    """

    def __init__(self, send: Send, receive: Receive) -> None:
        self._send = send
        self._receive = receive

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._send(
                {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            )
            return
        await self._send({**message, "more_body": True})
        try:
            async with asyncio.timeout(_DRAIN_SECONDS):
                while (await self._receive()).get("more_body", False):
                    pass
        except TimeoutError:
            pass
        await self._send({"type": "http.response.body", "body": b""})


class _Replay:
    """A `receive` that returns a body that was already read."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


def _headers(scope: Scope) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1")
        if key in found:
            # Joined, so that a request with two Host or Origin headers matches no allowed value.
            separator = "; " if key == "cookie" else ", "
            found[key] += separator + value.decode("latin-1")
        else:
            found[key] = value.decode("latin-1")
    return found


def _size(scope: Scope) -> int:
    lines = sum(len(name) + len(value) for name, value in scope["headers"])
    return lines + len(scope.get("raw_path", b"")) + len(scope["query_string"])


def _source(scope: Scope) -> str:
    return scope["client"][0] if scope["client"] else ""


async def _uid(scope: Scope) -> int | None:
    """The user of the client process; None when the client is on another machine."""
    found: asyncio.Future[int | None] | None = scope.get("extensions", {}).get("stoker.uid")
    return None if found is None else await asyncio.shield(found)


async def _body(headers: Mapping[str, str], receive: Receive, limit: int) -> bytes:
    too_large = _Refused(
        Refusal(413, "too_large", f"the request body is larger than {limit} bytes")
    )
    length = headers.get("content-length", "0")
    if length.isdigit() and int(length) > limit:
        raise too_large
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise _Refused(Refusal(400, "usage", "the request is incomplete"))
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > limit:
                    raise too_large
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        late = f"the request body did not arrive within {_BODY_SECONDS:g} seconds"
        raise _Refused(Refusal(408, "timed_out", late)) from None
