"""uvicorn's HTTP with the limits that a port needs: so many connections, so long for a header.

Other users of this host get few of the places, so that they cannot take all of them.

Written against uvicorn's h11 protocol, whose class may be given by anybody who configures it.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from stoker.http.peers import is_loopback, own_uids, peer_uid

MOST_CONNECTIONS = 256
MOST_STRANGERS = 8
_HEADER_SECONDS = 10.0
_AT_ONCE = struct.pack("ii", 1, 0)


class Protocol(H11Protocol):
    _late: asyncio.TimerHandle | None = None
    _has_ended = False  # the other end sends nothing more
    _uid: asyncio.Future[int | None] | None = None  # of the other end, found once
    _strangers: ClassVar[set[Protocol]] = set()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            self._abort()
            return
        if self.client and self.server and is_loopback(self.client[0]):
            # A table of the kernel's: some microseconds for each connection that the host has.
            here = (self.server[0], self.server[1] or 0)
            self._uid = self.loop.run_in_executor(None, peer_uid, self.client, here)
            self._uid.add_done_callback(self._on_uid)
        self._wait_for_header()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._strangers.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        cycle = self.cycle
        super().data_received(data)
        if self.cycle is not cycle:  # a whole header has come
            self._stop_waiting()
        elif self._late is None and (cycle is None or cycle.response_complete):
            self._wait_for_header()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whoever has said all (`nc -N`) may still listen; who leaves a stream does not."""
        self._has_ended = True
        cycle = self.cycle
        return cycle is not None and not cycle.more_body and not cycle.response_started

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._has_ended and self.cycle.response_complete:  # no other was sent along with it
            self.transport.close()

    def handle_events(self) -> None:
        scope = self.scope
        super().handle_events()
        if self.scope is not None and self.scope is not scope:
            # For streams: a client that does not read is left without a word.
            extensions: dict[str, Any] = {"stoker.abort": self._abort, "stoker.uid": self._uid}
            self.scope["extensions"] = extensions

    def _on_uid(self, found: asyncio.Future[int | None]) -> None:
        if found.cancelled() or found.result() in own_uids() or self.transport.is_closing():
            return
        self._strangers.add(self)
        if len(self._strangers) > MOST_STRANGERS:
            self._abort()

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
