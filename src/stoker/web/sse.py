"""Send server-sent events to one client, until it disconnects or falls behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from stoker.web.event_hub import Client, EventHub
from stoker.web.responses import refusal_response

_PING_SECONDS = 15.0
_SEND_TIMEOUT_SECONDS = 5.0  # a client that reads nothing for this long is dropped
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),
]


class Stream(Response):
    """Ends when the client disconnects, falls behind or logs out, or when the server stops."""

    def __init__(self, hub: EventHub, after: int | None, is_allowed: Callable[[], bool]) -> None:
        super().__init__()
        self._hub = hub
        self._after = after
        self._is_allowed = is_allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        abort: Callable[[], None] = scope.get("extensions", {}).get("stoker.abort", lambda: None)
        client = self._hub.subscribe(self._after, abort)
        if client is None:
            await refusal_response(503, "too_many", "too many browser tabs are open")(
                scope, receive, send
            )
            return
        disconnected = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await self._pump(client, disconnected, send)
        except TimeoutError:
            abort()  # the client does not read
            await asyncio.sleep(0)  # let the connection handle the abort
        finally:
            self._hub.unsubscribe(client)
            disconnected.cancel()

    async def _pump(self, client: Client, disconnected: asyncio.Future[None], send: Send) -> None:
        while not disconnected.done():
            next_event = asyncio.ensure_future(client.events.get())
            waiting: set[asyncio.Future[Any]] = {next_event, disconnected}
            await asyncio.wait(waiting, timeout=_PING_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if next_event.done():
                data = next_event.result()
            else:
                next_event.cancel()
                data = b": ping\n\n"
            if not self._is_allowed():
                data = None
            is_last = data is None
            message = {"type": "http.response.body", "body": data or b"", "more_body": not is_last}
            await asyncio.wait_for(send(message), _SEND_TIMEOUT_SECONDS)
            if is_last:
                return


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
