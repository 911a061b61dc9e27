"""How many connections one peer may have, decided before a connection costs anything.

Peers are the users of this host and the addresses of other machines. The server's own user has
nearly all places; other users of this host share a few, enough to be told that they are refused.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import Any

from stoker.core.record import Record
from stoker.http.addresses import is_loopback
from stoker.http.peers import UNKNOWN, own_uids, peer_uid

MOST_CONNECTIONS = 256
MOST_OF_OTHERS = 8  # of all other users of this host together
MOST_OF_MACHINE = 64
_MOST_REFUSED = 32  # before the loop may do something else
_RESET = struct.pack("ii", 1, 0)


class Peer(Record):
    """Who is at the other end of a connection."""

    address: str
    uid: int | None  # None: on another machine, or not known yet
    is_scanned: bool = False  # the kernel has to be asked in the slow way

    @property
    def group(self) -> str:
        """What the connection counts against."""
        if self.uid is not None:
            return "own" if self.uid in own_uids() else "others"
        return "scanned" if self.is_scanned else self.address


def peer_of(connection: socket.socket, address: tuple[Any, ...]) -> Peer:
    client = (str(address[0]), int(address[1]))
    here = connection.getsockname()
    server = (str(here[0]), int(here[1]))
    is_here = is_loopback(client[0]) or client[0] == server[0]
    uid = peer_uid(client, server)
    if uid is None:
        return Peer(client[0], None, is_here)
    if not is_connected(connection):
        uid = UNKNOWN
    # A socket on another machine is not found here: only its address is known.
    return Peer(client[0], None if uid == UNKNOWN and not is_here else uid)


class Limits:
    """The connections that are open, by peer."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}
        self._arriving: dict[int, Peer] = {}

    def admit(self, descriptor: int, peer: Peer) -> bool:
        """Whether one more may come; then it counts until `leave`.

        It is known by its descriptor: two may have the same address, if one of them was reset.
        """
        most = {"own": MOST_CONNECTIONS, "others": MOST_OF_OTHERS}.get(peer.group, MOST_OF_MACHINE)
        all_open = sum(self._open.values())
        if self._open.get(peer.group, 0) >= most or all_open >= MOST_CONNECTIONS:
            return False
        self._open[peer.group] = self._open.get(peer.group, 0) + 1
        self._arriving[descriptor] = peer
        return True

    def take(self, descriptor: int) -> Peer | None:
        """Who was admitted a moment ago."""
        return self._arriving.pop(descriptor, None)

    def leave(self, peer: Peer) -> None:
        left = self._open.get(peer.group, 0) - 1
        if left > 0:
            self._open[peer.group] = left
        else:
            self._open.pop(peer.group, None)


limits = Limits()  # one server in a process


class Listener(socket.socket):
    """A listening socket that resets connections beyond the limits as soon as it accepts them."""

    def accept(self) -> tuple[socket.socket, Any]:
        for _ in range(_MOST_REFUSED):
            connection, address = super().accept()
            try:
                if limits.admit(connection.fileno(), peer_of(connection, address)):
                    return connection, address
            except OSError:
                pass  # gone again
            reset(connection)
            connection.close()
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def is_connected(connection: Any) -> bool:
    """Asked after a look-up: a connection that was reset keeps what was sent, and its port may
    belong to a socket of another user by then."""
    try:
        connection.getpeername()
    except OSError:
        return False
    return True


def reset(connection: Any) -> None:
    """Let the close that follows drop what was not sent, so that nothing is kept for this peer."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    except OSError:
        pass  # gone by itself
