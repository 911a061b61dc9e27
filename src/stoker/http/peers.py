"""Which user owns the process at the other end of a connection within this host.

A loopback port is open to every user of the host, so the address of a peer alone says nothing. The
kernel is asked for the one socket (sock_diag.py); where it cannot be, its table of all sockets is
read, for all who wait at once and never back to back.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator

from stoker.http import sock_diag
from stoker.http.sock_diag import LISTEN, Place

UNKNOWN = -1  # owned by no process any more, or not told: treated as another user
_LISTENING = f"{LISTEN:02X}"
_MAPPED = b"\x00" * 10 + b"\xff\xff"  # how the table of IPv6 writes an address of IPv4
_PAUSE_FACTOR = 4  # a table is read for at most a fifth of the time

_has_look_up: bool | None = None  # None: not tried yet


def own_uids() -> frozenset[int]:
    """Ours, and root's, to whom nothing is closed."""
    return frozenset({0, os.geteuid()})


def peer_uid(client: Place, server: Place) -> int | None:
    """The owner of the socket at `client` that is connected to `server`, or UNKNOWN.

    None: the kernel cannot be asked for one socket; then `scan_uid` finds it, slowly.
    """
    global _has_look_up
    if _has_look_up is False:
        return None
    try:
        found = sock_diag.find(client, server)
        if found is None and _has_look_up is None:
            _has_look_up = _answers()
            if not _has_look_up:
                return None
        if found is None or found.state == LISTEN or not found.inode:
            return UNKNOWN
        _has_look_up = True
        return found.uid
    except sock_diag.Unsupported:
        _has_look_up = False
        return None
    except OSError:
        return UNKNOWN


def _answers() -> bool:
    """Whether the kernel knows a connection that exists: "not found" can also mean "no module"."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        client.connect(listener.getsockname())
        return sock_diag.find(client.getsockname(), listener.getsockname()) is not None


def listener_uid(address: str, port: int) -> int | None:
    """The owner of the socket that answers at this address; None when there is none."""
    try:
        found = sock_diag.find((address, port), (address, 0))
    except (sock_diag.Unsupported, OSError):
        found = None
    if found is not None:
        return found.uid
    every = ("0.0.0.0", "::") if ":" not in address else ("::",)
    places = {place for host in (address, *every) for place in _written(host, port)}
    for ours, _, state, uid, _ in _sockets():
        if state == _LISTENING and ours in places:
            return uid
    return None


class TableScan:
    """The owners of connections by the table of all sockets, one reader at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read_at = 0.0  # when the reading began whose result is kept
        self._next_at = 0.0
        self._found: dict[tuple[str, str], int] = {}

    def uid(self, client: Place, server: Place) -> int:
        asked_at = time.monotonic()
        with self._lock:
            if self._read_at <= asked_at:  # begun before this connection was there
                time.sleep(max(0.0, self._next_at - time.monotonic()))
                self._read(server[1])
            pairs = zip(_written(*client), _written(*server), strict=True)
            return next((self._found[pair] for pair in pairs if pair in self._found), UNKNOWN)

    def _read(self, port: int) -> None:
        self._read_at = time.monotonic()
        end = f":{port:04X}"
        try:
            self._found = {
                (ours, theirs): uid if inode else UNKNOWN
                for ours, theirs, state, uid, inode in _sockets()
                if state != _LISTENING and theirs.endswith(end)
            }
        except OSError:
            self._found = {}
        took = time.monotonic() - self._read_at
        self._next_at = time.monotonic() + took * _PAUSE_FACTOR


_scan = TableScan()
scan_uid = _scan.uid


def _sockets() -> Iterator[tuple[str, str, str, int, int]]:
    """Here, there, state, owner and inode of every TCP socket of this host."""
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/self/net/{table}", encoding="ascii") as file:
                lines = file.readlines()[1:]
        except FileNotFoundError:  # no IPv6 here
            if table == "tcp":
                raise
            continue
        for line in lines:
            words = line.split()
            yield words[1], words[2], words[3], int(words[7]), int(words[9])


def _written(host: str, port: int) -> tuple[str, ...]:
    """An address as the tables write it; those of IPv4 can be in both.

    >>> _written("127.0.0.1", 8080)[0] in ("0100007F:1F90", "7F000001:1F90")
    True
    """
    host = host.partition("%")[0]
    if ":" in host:
        return (_hexadecimal(socket.inet_pton(socket.AF_INET6, host), port),)
    packed = socket.inet_pton(socket.AF_INET, host)
    return _hexadecimal(packed, port), _hexadecimal(_MAPPED + packed, port)


def _hexadecimal(packed: bytes, port: int) -> str:
    """Four bytes at a time, in the byte order of the host."""
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
