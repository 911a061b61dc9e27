"""Whose process is at the other end of a connection over loopback, as the kernel tells.

A loopback port is open to every user of the host. The token keeps them out; this does so once more,
for a cookie is sent to every port of the same host name, and a token may have been seen.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Iterator

_LISTENING = "0A"


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def peer_uid(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """The owner of the socket at `client` that is connected to `server`.

    None when the kernel does not tell; -1 when its owner has closed it already.
    """
    wanted = (_written(*client), _written(*server))
    try:
        for ours, theirs, state, uid, inode in _sockets(":" in client[0]):
            if (ours, theirs) == wanted and state != _LISTENING:
                return uid if inode else -1  # a socket without an owner counts as root's
    except OSError:
        return None
    return -1


def _sockets(is_six: bool) -> Iterator[tuple[str, str, str, int, int]]:
    with open(f"/proc/self/net/tcp{'6' if is_six else ''}", encoding="ascii") as table:
        next(table, None)
        for line in table:
            words = line.split()
            yield words[1], words[2], words[3], int(words[7]), int(words[9])


def _written(host: str, port: int) -> str:
    """`0100007F:1F90`: the address in the byte order of the host, four bytes at a time."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    packed = socket.inet_pton(family, host.partition("%")[0])
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
