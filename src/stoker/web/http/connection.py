"""uvicorn's h11 protocol, extended with the user at the other end and a time limit for headers.

uvicorn accepts a protocol class in its configuration (`http=`).
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from stoker.record import Record
from stoker.web.http.addresses import is_loopback
from stoker.web.http.peers import UNKNOWN, own_uids, peer_uid, scan_uid

# Limit the connections of each peer, right after `accept` and before any work is done for one.
#
# A peer is a user of this host or the address of another machine. The server's own user may open
# nearly all connections; other users of this host share a few, enough to receive a refusal.

MAX_CONNECTIONS = 256
MAX_OF_OTHERS = 8  # for all other users of this host together
MAX_OF_MACHINE = 64
_MAX_REFUSED = 32  # in one call of `accept`, so that the event loop is not blocked
_RESET = struct.pack("ii", 1, 0)  # linger on, for zero seconds: close() sends RST


class Peer(Record):
    """The other end of a connection."""

    address: str
    uid: int | None  # None: on another machine, or not looked up yet
    is_scanned: bool = False  # its user must be looked up with `scan_uid`, which is slow

    @property
    def group(self) -> str:
        """The key under which its connections are counted."""
        if self.uid is not None:
            return "own" if self.uid in own_uids() else "others"
        return "scanned" if self.is_scanned else self.address


def peer_of(connection: socket.socket, address: tuple[Any, ...]) -> Peer:
    client = (str(address[0]), int(address[1]))
    local = connection.getsockname()
    server = (str(local[0]), int(local[1]))
    is_local = is_loopback(client[0]) or client[0] == server[0]
    uid = peer_uid(client, server)
    if uid is None:
        return Peer(client[0], None, is_local)
    if not is_connected(connection):
        uid = UNKNOWN
    # The kernel does not know sockets of other machines: only their address is known.
    return Peer(client[0], None if uid == UNKNOWN and not is_local else uid)


class Limits:
    """Counts the open connections of each group of peers."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}
        self._arriving: dict[int, Peer] = {}

    def admit(self, descriptor: int, peer: Peer) -> bool:
        """Return whether one more connection is allowed; if so, it is counted until `leave`.

        The file descriptor identifies it: two connections can have the same address when one of
        them was reset.
        """
        most = {"own": MAX_CONNECTIONS, "others": MAX_OF_OTHERS}.get(peer.group, MAX_OF_MACHINE)
        total = sum(self._open.values())
        if self._open.get(peer.group, 0) >= most or total >= MAX_CONNECTIONS:
            return False
        self._open[peer.group] = self._open.get(peer.group, 0) + 1
        self._arriving[descriptor] = peer
        return True

    def take(self, descriptor: int) -> Peer | None:
        """Return, once, the peer that was admitted with this descriptor."""
        return self._arriving.pop(descriptor, None)

    def leave(self, peer: Peer) -> None:
        remaining = self._open.get(peer.group, 0) - 1
        if remaining > 0:
            self._open[peer.group] = remaining
        else:
            self._open.pop(peer.group, None)


limits = Limits()  # a process runs only one server


class Listener(socket.socket):
    """A listening socket that resets connections beyond the limits as soon as it accepts them."""

    def accept(self) -> tuple[socket.socket, Any]:
        for _ in range(_MAX_REFUSED):
            connection, address = super().accept()
            try:
                if limits.admit(connection.fileno(), peer_of(connection, address)):
                    return connection, address
            except OSError:
                pass  # the client has already disconnected
            reset(connection)
            connection.close()
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def is_connected(connection: Any) -> bool:
    """Check again after a look-up: data of a connection that was reset can still be read, while its
    port may already belong to a socket of another user."""
    try:
        connection.getpeername()
    except OSError:
        return False
    return True


def reset(connection: Any) -> None:
    """Make the next close() send RST, so that the kernel discards unsent data."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    except OSError:
        pass  # already disconnected


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
