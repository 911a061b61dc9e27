"""Server-sent events to one client, for as long as it keeps up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from stoker.web.event_hub import Client, EventHub
from stoker.web.responses import refusal

_PING_SECONDS = 15.0
_PATIENCE_SECONDS = 5.0  # how long a client may not read before it is dropped
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),
]


class Stream(Response):
    """A response that ends when the client leaves, falls behind or logs out, or the server ends."""

    def __init__(self, hub: EventHub, after: int | None, is_allowed: Callable[[], bool]) -> None:
        super().__init__()
        self._hub = hub
        self._after = after
        self._is_allowed = is_allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        abort: Callable[[], None] = scope.get("extensions", {}).get("stoker.abort", lambda: None)
        client = self._hub.subscribe(self._after, abort)
        if client is None:
            await refusal(503, "too_many", "too many pages are open")(scope, receive, send)
            return
        leaving = asyncio.ensure_future(_leaves(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await self._pump(client, leaving, send)
        except TimeoutError:
            abort()  # what it has not read by now it never will
            await asyncio.sleep(0)  # the connection learns of it
        finally:
            self._hub.unsubscribe(client)
            leaving.cancel()

    async def _pump(self, client: Client, leaving: asyncio.Future[None], send: Send) -> None:
        while not leaving.done():
            coming = asyncio.ensure_future(client.events.get())
            both: set[asyncio.Future[Any]] = {coming, leaving}
            await asyncio.wait(both, timeout=_PING_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                data = coming.result()
            else:
                coming.cancel()
                data = b": ping\n\n"
            if not self._is_allowed():
                data = None
            is_last = data is None
            message = {"type": "http.response.body", "body": data or b"", "more_body": not is_last}
            await asyncio.wait_for(send(message), _PATIENCE_SECONDS)
            if is_last:
                return


async def _leaves(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
