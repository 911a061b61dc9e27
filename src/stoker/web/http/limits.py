"""Limit the connections of each peer, right after `accept` and before any work is done for one.

A peer is a user of this host or the address of another machine. The server's own user may open
nearly all connections; other users of this host share a few, enough to receive a refusal.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import Any

from stoker.record import Record
from stoker.web.http.addresses import is_loopback
from stoker.web.http.peers import UNKNOWN, own_uids, peer_uid

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
