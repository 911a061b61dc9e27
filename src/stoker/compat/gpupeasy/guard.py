"""Who may speak to us. A loopback port is open to every user of the host and every web page.

A connection over loopback is let in when its other end belongs to our own user, as the kernel's
table of connections tells; any other needs the token. Beside that, the Host has to be exactly one
of our own (a page that points its own name at this address is turned away), and what a browser
sends must come from our own pages.
"""

from __future__ import annotations

import hmac
import os
import socket
import struct
from collections.abc import Iterator, Mapping

from stoker.core.record import Record

_ESTABLISHED_ENDS = ("01", "04", "05", "08")  # open, or one side has said its last word
_LISTENING = "0A"
_LOOPBACK = ("127.0.0.1", "localhost", "0.0.0.0")  # the last: where old scripts look for it


class Refusal(Record):
    status: int
    message: str


class Guard:
    def __init__(self, hosts: frozenset[str], token: str | None) -> None:
        self._hosts = hosts
        self._token = token

    @property
    def has_token(self) -> bool:
        return self._token is not None

    def refuse(self, method: str, headers: Mapping[str, str], is_own: bool) -> Refusal | None:
        """Why a request is turned away; header names are in lower case."""
        if headers.get("host", "").lower() not in self._hosts:
            return Refusal(403, "This is not the address of this server")
        if not is_own and not self._has_right_token(headers):
            return Refusal(401, "This server answers its own user only, or needs a token")
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"http://{headers['host'].lower()}":
            return Refusal(403, "Requests from other sites are refused")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            is_link = method in ("GET", "HEAD") and headers.get("sec-fetch-mode") == "navigate"
            if not is_link:
                return Refusal(403, "Requests from other sites are refused")
        return None

    def _has_right_token(self, headers: Mapping[str, str]) -> bool:
        if self._token is None:
            return False
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "basic":  # what a browser asks its user for; the name does not matter
            given = _password(given)
        elif kind.lower() != "bearer":
            return False
        return hmac.compare_digest(given.strip().encode(), self._token.encode())


def _password(text: str) -> str:
    import base64

    try:
        pair = base64.b64decode(text.strip(), validate=True).decode()
    except ValueError:
        return ""
    return pair.partition(":")[2]


def own_hosts(address: str, port: int, others: tuple[str, ...] = ()) -> frozenset[str]:
    """What the Host header may say.

    >>> sorted(own_hosts("127.0.0.1", 8888))
    ['0.0.0.0:8888', '127.0.0.1:8888', 'localhost:8888']
    >>> "localhost:9000" in own_hosts("127.0.0.1", 8888, ("localhost:9000",))  # through ssh -L
    True
    """
    names = list(_LOOPBACK) if is_loopback(address) or address == "0.0.0.0" else []
    names += [address, *others]
    if not is_loopback(address):
        names += [socket.gethostname(), socket.getfqdn()]
    hosts = {name.lower() if ":" in name else f"{name.lower()}:{port}" for name in names}
    return frozenset(hosts | ({name.lower() for name in names} if port == 80 else set()))


def is_loopback(address: str) -> bool:
    return address == "localhost" or address.startswith("127.")


# -- the kernel's table of connections ------------------------------------------------------------


def is_own_connection(connection: socket.socket) -> bool:
    """Whether the other end is a process of our own user on this host.

    The entry of the other end has to be there and to have an inode: an end that nobody holds any
    more is listed as root's, whoever made it.
    """
    here, there = connection.getsockname(), connection.getpeername()
    if not is_loopback(there[0]):
        return False
    for entry in _entries():
        if entry.local == _keys(*there[:2])[entry.family] \
                and entry.remote == _keys(*here[:2])[entry.family]:  # fmt: skip
            return (
                entry.state in _ESTABLISHED_ENDS
                and entry.inode != "0"
                and entry.uid == os.geteuid()
            )
    return False


def is_own_listener(port: int) -> bool:
    """Whether whoever listens on a loopback port is our own user."""
    places = {
        _keys(name, port)[family] for name in ("127.0.0.1", "0.0.0.0") for family in (0, 1)
    } | {f"{'0' * 32}:{port:04X}"}  # fmt: skip
    return any(
        entry.uid == os.geteuid()
        for entry in _entries()
        if entry.state == _LISTENING and entry.local in places
    )


class _Entry(Record):
    family: int  # 0: the table of IPv4, 1: that of IPv6, where IPv4 addresses are mapped
    local: str
    remote: str
    state: str
    uid: int
    inode: str


def _entries() -> Iterator[_Entry]:
    for family, path in enumerate(("/proc/self/net/tcp", "/proc/self/net/tcp6")):
        try:
            with open(path, encoding="ascii") as file:
                lines = file.readlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, remote, state, _, _, _, uid, _, inode, *_ = line.split()
            yield _Entry(family, local, remote, state, int(uid), inode)


def _keys(address: str, port: int) -> tuple[str, str]:
    """An IPv4 address as the two tables write it: words as this machine reads them."""
    (word,) = struct.unpack("=I", socket.inet_aton(address))
    (mark,) = struct.unpack("=I", b"\x00\x00\xff\xff")
    return f"{word:08X}:{port:04X}", f"{0:016X}{mark:08X}{word:08X}:{port:04X}"
