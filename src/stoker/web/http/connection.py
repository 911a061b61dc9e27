"""uvicorn's h11 protocol, extended with the user at the other end and a time limit for headers.

uvicorn accepts a protocol class in its configuration (`http=`).
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from stoker.web.http.limits import Peer, is_connected, limits, reset
from stoker.web.http.peers import UNKNOWN, scan_uid

_HEADER_SECONDS = 10.0


class Protocol(H11Protocol):
    _header_timer: asyncio.TimerHandle | None = None
    _has_ended = False  # the client has sent EOF
    _peer: Peer | None = None
    _uid: asyncio.Future[int | None]  # of the other end

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._peer = limits.take(transport.get_extra_info("socket").fileno())
        self._uid = self.loop.create_future()
        if self._peer is None or self.client is None or self.server is None:
            self._uid.set_result(UNKNOWN)
            self._abort()  # the connection was reset in the meantime
            return
        if self._peer.is_scanned:
            self._uid = self.loop.run_in_executor(None, self._scan)
        else:
            self._uid.set_result(self._peer.uid)
        self._start_header_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_header_timer()
        if self._peer is not None:
            limits.leave(self._peer)
            self._peer = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        cycle = self.cycle
        super().data_received(data)
        if self.cycle is not cycle:  # the header is complete
            self._cancel_header_timer()
        elif self._header_timer is None and (cycle is None or cycle.response_complete):
            self._start_header_timer()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection open for a response that has not started: a client may close only
        its sending side (`nc -N`). A client that closes during a stream has disconnected."""
        self._has_ended = True
        cycle = self.cycle
        return cycle is not None and not cycle.more_body and not cycle.response_started

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._has_ended and self.cycle.response_complete:  # no pipelined request
            self.transport.close()

    def handle_events(self) -> None:
        scope = self.scope
        super().handle_events()
        if self.scope is not None and self.scope is not scope:
            # A stream aborts the connection of a client that does not read.
            extensions: dict[str, Any] = {"stoker.abort": self._abort, "stoker.uid": self._uid}
            self.scope["extensions"] = extensions

    def _scan(self) -> int:
        """Find the user in the table of all sockets; blocks, so it runs in a thread."""
        assert self.client is not None and self.server is not None
        uid = scan_uid(self.client, (self.server[0], self.server[1] or 0))
        return uid if is_connected(self.transport.get_extra_info("socket")) else UNKNOWN

    def _abort(self) -> None:
        """Close at once and discard unsent data, which the kernel would keep for a while."""
        connection = self.transport.get_extra_info("socket")
        if connection is not None:
            reset(connection)
        self.transport.abort()

    def _start_header_timer(self) -> None:
        self._header_timer = self.loop.call_later(_HEADER_SECONDS, self._abort)

    def _cancel_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None
