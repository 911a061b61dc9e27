"""Find the user that owns the other end of a connection within this host.

Every user of the host can connect to a loopback port, so the address does not identify the peer.
The kernel is asked for the one socket (sock_diag.py). Where that is not possible, its table of all
sockets is read: one read serves all waiting callers, with a pause between two reads.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator

from stoker.web.http import sock_diag
from stoker.web.http.sock_diag import LISTEN, SocketAddress

UNKNOWN = -1  # the socket is closed or was not found: treated as another user
_LISTENING = f"{LISTEN:02X}"
_MAPPED = b"\x00" * 10 + b"\xff\xff"  # prefix of an IPv4 address in the table of IPv6 sockets
_PAUSE_FACTOR = 4  # reading the table takes at most a fifth of the time

_has_look_up: bool | None = None  # whether sock_diag works here; None: not tried yet


def own_uids() -> frozenset[int]:
    """The user of this process and root, who can read its memory anyway."""
    return frozenset({0, os.geteuid()})


def peer_uid(client: SocketAddress, server: SocketAddress) -> int | None:
    """The owner of the socket at `client` that is connected to `server`, or UNKNOWN.

    Returns None where the kernel cannot look up a single socket; use `scan_uid` then.
    """
    global _has_look_up
    if _has_look_up is False:
        return None
    try:
        found = sock_diag.find(client, server)
        if found is None and _has_look_up is None:
            _has_look_up = _finds_own_connection()
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


def _finds_own_connection() -> bool:
    """Whether the kernel finds a known connection; without its module it finds none."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        client.connect(listener.getsockname())
        return sock_diag.find(client.getsockname(), listener.getsockname()) is not None


def listener_uid(address: str, port: int) -> int | None:
    """The owner of the socket that listens at this address; None when there is none."""
    try:
        found = sock_diag.find((address, port), (address, 0))
    except (sock_diag.Unsupported, OSError):
        found = None
    if found is not None:
        return found.uid
    wildcards = ("0.0.0.0", "::") if ":" not in address else ("::",)
    places = {place for host in (address, *wildcards) for place in _table_forms(host, port)}
    for local, _, state, uid, _ in _sockets():
        if state == _LISTENING and local in places:
            return uid
    return None


class TableScan:
    """Finds owners of connections in the table of all sockets; one thread reads at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read_at = 0.0  # when the read began that filled `_found`
        self._next_at = 0.0
        self._found: dict[tuple[str, str], int] = {}

    def uid(self, client: SocketAddress, server: SocketAddress) -> int:
        asked_at = time.monotonic()
        with self._lock:
            if self._read_at <= asked_at:  # the table may be older than this connection
                time.sleep(max(0.0, self._next_at - time.monotonic()))
                self._read(server[1])
            pairs = zip(_table_forms(*client), _table_forms(*server), strict=True)
            return next((self._found[pair] for pair in pairs if pair in self._found), UNKNOWN)

    def _read(self, port: int) -> None:
        self._read_at = time.monotonic()
        suffix = f":{port:04X}"
        try:
            self._found = {
                (local, remote): uid if inode else UNKNOWN
                for local, remote, state, uid, inode in _sockets()
                if state != _LISTENING and remote.endswith(suffix)
            }
        except OSError:
            self._found = {}
        took = time.monotonic() - self._read_at
        self._next_at = time.monotonic() + took * _PAUSE_FACTOR


_scan = TableScan()
scan_uid = _scan.uid


def _sockets() -> Iterator[tuple[str, str, str, int, int]]:
    """Local address, remote address, state, owner and inode of every TCP socket of this host."""
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/self/net/{table}", encoding="ascii") as file:
                lines = file.readlines()[1:]
        except FileNotFoundError:  # the kernel has no IPv6
            if table == "tcp":
                raise
            continue
        for line in lines:
            words = line.split()
            yield words[1], words[2], words[3], int(words[7]), int(words[9])


def _table_forms(host: str, port: int) -> tuple[str, ...]:
    """An address as the tables show it; an IPv4 address can be in both tables.

    >>> _table_forms("127.0.0.1", 8080)[0] in ("0100007F:1F90", "7F000001:1F90")
    True
    """
    host = host.partition("%")[0]
    if ":" in host:
        return (_hexadecimal(socket.inet_pton(socket.AF_INET6, host), port),)
    packed = socket.inet_pton(socket.AF_INET, host)
    return _hexadecimal(packed, port), _hexadecimal(_MAPPED + packed, port)


def _hexadecimal(packed: bytes, port: int) -> str:
    """Groups of four bytes, each in the byte order of the host."""
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
