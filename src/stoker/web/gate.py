"""Around everything: who is let in, how large a request may be, what every answer says.

A body is read here, whole and within its limits, before anything else happens with the request.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stoker.errors import Error
from stoker.web.answers import error_answer, refusal
from stoker.web.guard import CHANGES, Asked, Guard, Refusal
from stoker.web.peer import is_loopback, peer_uid

HEADER_BYTES = 16 << 10
_BODY_BYTES = 1 << 20
_BATCH_BYTES = 16 << 20
_BODY_SECONDS = 30.0
_GUESS_SECONDS = 1.0
_MOST_SLOW = 8
_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_NO_STORE = (b"cache-control", b"no-store")


class _Refused(Exception):
    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal


class Gate:
    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app = app
        self._guard = guard
        self._slow = 0
        self._log = logging.getLogger("stoker.web")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        dressed = _Dressed(send)
        try:
            headers = _headers(scope)
            if _size(scope) > HEADER_BYTES:
                raise _Refused(Refusal(431, "too_large", "the headers are too large"))
            asked = Asked(
                scope["method"], scope["path"], headers, _source(scope), await _uid(scope)
            )
            if self._guard.is_suspect(asked):
                await self._take_time()
            refused = self._guard.refuse(asked)
            if refused is not None:
                raise _Refused(refused)
            if asked.method in CHANGES:
                limit = _BATCH_BYTES if asked.path == "/api/batch" else _BODY_BYTES
                receive = _Replay(await _body(headers, receive, limit), receive)
            await self._app(scope, receive, dressed)
        except _Refused as error:
            # What else this connection has sent is not worth reading.
            await refusal(*error.refusal)(scope, receive, _Closing(dressed))
        except Error as error:
            await error_answer(error)(scope, receive, dressed)
        except Exception:
            self._log.exception("%s %s", scope["method"], scope["path"])
            if dressed.is_complete:
                return
            if dressed.is_started:
                raise
            text = "something is wrong with this server"
            hint = "its log (web.log in the state folder) says what"
            await refusal(500, "broken", text, hint)(scope, receive, dressed)

    async def _take_time(self) -> None:
        """Few guesses a second. Whoever has the right token waits a little, and is let in: a
        forgotten script with an old token must not lock its owner out."""
        if self._slow >= _MOST_SLOW:
            raise _Refused(self._guard.too_many())
        self._slow += 1
        try:
            await asyncio.sleep(_GUESS_SECONDS)
        finally:
            self._slow -= 1


class _Dressed:
    """A `send` that puts our headers on every answer."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.is_started = self.is_complete = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            self.is_complete = not message.get("more_body", False)
        elif message["type"] == "http.response.start":
            self.is_started = True
            headers = list(message.get("headers", ()))
            if not any(name.lower() == b"cache-control" for name, _ in headers):
                headers.append(_NO_STORE)
            message = {**message, "headers": [*headers, *_HEADERS]}
        await self._send(message)


class _Closing:
    def __init__(self, send: Send) -> None:
        self._send = send

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
        await self._send(message)


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
    """Who is at the other end, where the kernel can tell: on this host."""
    client, server = scope["client"], scope["server"]
    if not client or not server or not is_loopback(client[0]):
        return None
    known: dict[str, int | None] = scope.get("extensions", {}).get("stoker.peer", {})
    if "uid" not in known:
        # A table of the kernel's: some microseconds for each connection that the host has.
        loop = asyncio.get_running_loop()
        known["uid"] = await loop.run_in_executor(None, peer_uid, client, server)
    return known["uid"]


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


def own_uids() -> frozenset[int]:
    """Ours, and root's, to whom nothing is closed."""
    return frozenset({0, os.geteuid()})
