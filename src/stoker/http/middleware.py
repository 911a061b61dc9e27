"""Around everything: who is let in, how large a request may be, what every answer says.

A body is read here, whole and within its limits, before anything else happens with the request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stoker.core.record import Record
from stoker.errors import Error
from stoker.http.guard_request import CHANGES, TOO_MANY, Guard, GuardRequest, Refusal

HEADER_BYTES = 16 << 10
_BODY_SECONDS = 30.0
_GUESS_SECONDS = 1.0
_PATIENCE_SECONDS = 1.0
_MOST_SLOW = 8
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class MiddlewareConfig(Record):
    """How one server differs from another at its gate."""

    headers: Mapping[str, str]  # on every answer, beside those that all have
    most_bytes: Callable[[str], int]  # of a body, by path
    refuse: Callable[[Refusal], Response]
    fail: Callable[[Error], Response]


class _Refused(Exception):
    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal


class Middleware:
    def __init__(self, app: ASGIApp, guard: Guard, manners: MiddlewareConfig) -> None:
        self._app = app
        self._guard = guard
        self._manners = manners
        given = {**_HEADERS, **manners.headers}
        self._headers = [(name.encode(), value.encode()) for name, value in given.items()]
        self._slow = 0
        self._log = logging.getLogger("stoker.http")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        dressed = _WithHeaders(send, self._headers)
        try:
            headers = _headers(scope)
            if _size(scope) > HEADER_BYTES:
                raise _Refused(Refusal(431, "too_large", "the headers are too large"))
            asked = GuardRequest(
                scope["method"], scope["path"], headers, _source(scope), await _uid(scope)
            )
            scope["stoker.asked"] = asked
            if self._guard.is_suspect(asked):
                await self._take_time()
            refused = self._guard.refuse(asked)
            if refused is not None:
                raise _Refused(refused)
            if asked.method in CHANGES:
                limit = self._manners.most_bytes(asked.path)
                receive = _Replay(await _body(headers, receive, limit), receive)
            await self._app(scope, receive, dressed)
        except _Refused as error:
            # What else this connection has sent is not worth reading.
            await self._manners.refuse(error.refusal)(scope, receive, _Closing(dressed, receive))
        except Error as error:
            await self._manners.fail(error)(scope, receive, dressed)
        except Exception:
            self._log.exception("%s %s", scope["method"], scope["path"])
            if dressed.is_complete:
                return
            if dressed.is_started:
                raise
            broken = Refusal(500, "broken", "something is wrong with this server",
                             "its log (web.log in the state folder) says what")  # fmt: skip
            await self._manners.refuse(broken)(scope, receive, dressed)

    async def _take_time(self) -> None:
        """Few guesses a second. Whoever has the right token waits a little, and is let in: a
        forgotten script with an old token must not lock its owner out."""
        if self._slow >= _MOST_SLOW:
            raise _Refused(TOO_MANY)
        self._slow += 1
        try:
            await asyncio.sleep(_GUESS_SECONDS)
        finally:
            self._slow -= 1


class _WithHeaders:
    """A `send` that puts our headers on every answer."""

    def __init__(self, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        self._send = send
        self._headers = headers
        self.is_started = self.is_complete = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            self.is_complete = not message.get("more_body", False)
        elif message["type"] == "http.response.start":
            self.is_started = True
            # As people write them: old scripts look for `Location`.
            headers = [(name.title(), value) for name, value in message.get("headers", ())]
            if not any(name == b"Cache-Control" for name, _ in headers):
                headers.append((b"Cache-Control", b"no-store"))
            message = {**message, "headers": [*headers, *self._headers]}
        await self._send(message)


class _Closing:
    """A `send` for a connection that ends with this answer.

    Who still talks is heard out for a moment before: with words of his unread, the kernel would
    throw the answer away.
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
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while (await self._receive()).get("more_body", False):
                    pass
        except TimeoutError:
            pass
        await self._send({"type": "http.response.body", "body": b""})


class _Replay:
    """A `receive` that gives a body that was read already."""

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
            # Two Hosts or two Origins: who would know which of them others look at?
            joint = "; " if key == "cookie" else ", "
            found[key] += joint + value.decode("latin-1")
        else:
            found[key] = value.decode("latin-1")
    return found


def _size(scope: Scope) -> int:
    lines = sum(len(name) + len(value) for name, value in scope["headers"])
    return lines + len(scope.get("raw_path", b"")) + len(scope["query_string"])


def _source(scope: Scope) -> str:
    return scope["client"][0] if scope["client"] else ""


async def _uid(scope: Scope) -> int | None:
    """The user at the other end; None on another machine."""
    found: asyncio.Future[int | None] | None = scope.get("extensions", {}).get("stoker.uid")
    return None if found is None else await asyncio.shield(found)


async def _body(headers: Mapping[str, str], receive: Receive, limit: int) -> bytes:
    too_large = _Refused(Refusal(413, "too_large", f"more than {limit} bytes are not taken"))
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
                    raise _Refused(Refusal(400, "usage", "the request was cut off"))
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > limit:
                    raise too_large
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        raise _Refused(Refusal(408, "timed_out", "the request took too long to come")) from None
