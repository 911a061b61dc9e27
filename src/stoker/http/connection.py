"""uvicorn's HTTP with what a port needs beside: who is at the other end, so long for a header.

Written against uvicorn's h11 protocol, whose class may be given by anybody who configures it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from stoker.http.limits import Peer, is_connected, limits, reset
from stoker.http.peers import UNKNOWN, scan_uid

_HEADER_SECONDS = 10.0


class Protocol(H11Protocol):
    _late: asyncio.TimerHandle | None = None
    _has_ended = False  # the other end sends nothing more
    _peer: Peer | None = None
    _uid: asyncio.Future[int | None]  # of the other end

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._peer = limits.take(transport.get_extra_info("socket").fileno())
        self._uid = self.loop.create_future()
        if self._peer is None or self.client is None or self.server is None:
            self._uid.set_result(UNKNOWN)
            self._abort()  # reset by now
            return
        if self._peer.is_scanned:
            self._uid = self.loop.run_in_executor(None, self._scan)
        else:
            self._uid.set_result(self._peer.uid)
        self._wait_for_header()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self._peer is not None:
            limits.leave(self._peer)
            self._peer = None
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

    def _scan(self) -> int:
        """In a thread."""
        assert self.client is not None and self.server is not None
        uid = scan_uid(self.client, (self.server[0], self.server[1] or 0))
        return uid if is_connected(self.transport.get_extra_info("socket")) else UNKNOWN

    def _abort(self) -> None:
        """Now, and without what it has not taken: the kernel would keep that for a while."""
        connection = self.transport.get_extra_info("socket")
        if connection is not None:
            reset(connection)
        self.transport.abort()

    def _wait_for_header(self) -> None:
        self._late = self.loop.call_later(_HEADER_SECONDS, self._abort)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
