"""Whose process is at the other end of a connection over loopback, as the kernel tells.

A loopback port is open to every user of the host, so that its address alone says nothing.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from collections.abc import Iterator

NOBODY = -1  # an end that its owner has closed already
_LISTENING = "0A"
_MAPPED = b"\x00" * 10 + b"\xff\xff"  # how the table of IPv6 writes an address of IPv4


def is_loopback(host: str) -> bool:
    """
    >>> [is_loopback(host) for host in ("127.0.0.2", "::1", "localhost", "10.0.0.1")]
    [True, True, True, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def own_uids() -> frozenset[int]:
    """Ours, and root's, to whom nothing is closed."""
    return frozenset({0, os.geteuid()})


def peer_uid(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """The owner of the socket at `client` that is connected to `server`.

    None when the kernel does not tell; NOBODY when its owner has closed it already: the kernel
    lists such a socket as root's, whoever made it.
    """
    wanted = {(one, other) for one, other in zip(_written(*client), _written(*server), strict=True)}
    try:
        for ours, theirs, state, uid, inode in _sockets():
            if (ours, theirs) in wanted and state != _LISTENING:
                return uid if inode else NOBODY
    except OSError:
        return None
    return NOBODY


def listener_uid(port: int) -> int | None:
    """The owner of the socket that would answer on this port of loopback; None: nobody does."""
    hosts = ("127.0.0.1", "0.0.0.0", "::")
    places = {place for host in hosts for place in _written(host, port)}
    for ours, _, state, uid, _ in _sockets():
        if state == _LISTENING and ours in places:
            return uid
    return None


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
