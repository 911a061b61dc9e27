"""uvicorn's HTTP with the limits that a port needs: so many connections, so long for a header.

Written against uvicorn's h11 protocol, whose class may be given by anybody who configures it.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 256
_HEADER_SECONDS = 10.0
_AT_ONCE = struct.pack("ii", 1, 0)


class Protocol(H11Protocol):
    _late: asyncio.TimerHandle | None = None
    _peer: dict[str, int | None]  # what was found out about the other end, once

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._peer = {}
        if len(self.connections) > MOST_CONNECTIONS:
            self._abort()
            return
        self._wait_for_header()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        cycle = self.cycle
        super().data_received(data)
        if self.cycle is not cycle:  # a whole header has come
            self._stop_waiting()
        elif self._late is None and (cycle is None or cycle.response_complete):
            self._wait_for_header()

    def handle_events(self) -> None:
        scope = self.scope
        super().handle_events()
        if self.scope is not None and self.scope is not scope:
            # For streams: a client that does not read is left without a word.
            extensions: dict[str, Any] = {"stoker.abort": self._abort, "stoker.peer": self._peer}
            self.scope["extensions"] = extensions

    def _abort(self) -> None:
        """Now, and without what it has not taken: the kernel would keep that for a while."""
        connection = self.transport.get_extra_info("socket")
        if connection is not None:
            try:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            except OSError:
                pass  # gone by itself
        self.transport.abort()

    def _wait_for_header(self) -> None:
        self._late = self.loop.call_later(_HEADER_SECONDS, self._abort)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
