"""Find the user that owns the other end of a connection within this host.

Every user of the host can connect to a loopback port, so the address does not identify the peer.
The kernel is asked for the one socket (py). Where that is not possible, its table of all
sockets is read: one read serves all waiting callers, with a pause between two reads.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator

from stoker.record import Record

# Ask the kernel about one TCP socket by its addresses (NETLINK_SOCK_DIAG, see sock_diag(7)).
#
# The kernel uses its hash table, so the cost does not depend on the number of connections on the
# host, unlike reading /proc/net/tcp.

SocketAddress = tuple[str, int]  # a numeric address and a port

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_NLMSG_ERROR = 2
_ANY_STATE = 0xFFFFFFFF
_NO_COOKIE = 0xFFFFFFFF
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_REQUEST = struct.Struct("=BBBBI")  # family, protocol, extensions, padding, states
_ID = struct.Struct("!HH16s16s")  # ports and addresses, in the byte order of the network
_ID_END = struct.Struct("=III")  # interface, and a cookie of two words
_REPLY = struct.Struct("=BBBB48sIIIII")  # family, state, ..., id, ..., uid, inode
LISTEN = 10


class Unsupported(Exception):
    """This kernel or sandbox does not support looking up a socket."""


class Found(Record):
    state: int
    uid: int
    inode: int  # 0: no process has it open any more, and `uid` is meaningless


def find_socket(here: SocketAddress, there: SocketAddress) -> Found | None:
    """The socket at `here` that is connected to `there`; else the one that listens at `here`.

    Returns None when there is neither. Raises Unsupported, and OSError for other errors.
    """
    family, local, remote = _packed(here[0], there[0])
    body = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, _ANY_STATE)
    body += _ID.pack(here[1], there[1], local, remote) + _ID_END.pack(0, _NO_COOKIE, _NO_COOKIE)
    size = _HEADER.size + len(body)
    message = _HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + body
    try:
        # A new socket for each request, so that no reply to an earlier one can be in its buffer.
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as kernel:
            kernel.setblocking(False)  # sendto returns after the reply was queued
            kernel.sendto(message, (0, 0))
            reply = kernel.recv(4096)
    except BlockingIOError:
        raise Unsupported("no reply") from None
    except OSError as error:
        if error.errno in _UNSUPPORTED_ERRORS:
            raise Unsupported(str(error)) from None
        raise
    return _read(reply, _ID.pack(here[1], there[1], local, remote))


_UNSUPPORTED_ERRORS = (
    errno.EPROTONOSUPPORT,
    errno.EAFNOSUPPORT,
    errno.EPERM,
    errno.EACCES,
    errno.EINVAL,
    errno.ECONNREFUSED,
    errno.EOPNOTSUPP,
    errno.ENOSYS,
)


def _read(reply: bytes, requested: bytes) -> Found | None:
    _, kind, _, _, _ = _HEADER.unpack_from(reply)
    if kind == _NLMSG_ERROR:
        number = -struct.unpack_from("=i", reply, _HEADER.size)[0]
        if number == errno.ENOENT:
            return None
        if number in _UNSUPPORTED_ERRORS:
            raise Unsupported(os.strerror(number))
        raise OSError(number, os.strerror(number))
    if kind != _SOCK_DIAG_BY_FAMILY or len(reply) < _HEADER.size + _REPLY.size:
        raise Unsupported("a reply of an unknown kind")
    found = _REPLY.unpack_from(reply, _HEADER.size)
    state, socket_id, uid, inode = found[1], found[4], found[8], found[9]
    # For a closed connection the kernel returns the socket that listens on its port.
    if state != LISTEN and socket_id[:4] != requested[:4]:
        return None
    return Found(state, uid, inode)


def _packed(local: str, remote: str) -> tuple[int, bytes, bytes]:
    """The address family, and both addresses padded to sixteen bytes."""
    local, remote = local.partition("%")[0], remote.partition("%")[0]
    family = socket.AF_INET6 if ":" in local else socket.AF_INET
    pair = [socket.inet_pton(family, host).ljust(16, b"\0") for host in (local, remote)]
    return int(family), pair[0], pair[1]


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
        found = find_socket(client, server)
        if found is None and _has_look_up is None:
            _has_look_up = _finds_own_connection()
            if not _has_look_up:
                return None
        if found is None or found.state == LISTEN or not found.inode:
            return UNKNOWN
        _has_look_up = True
        return found.uid
    except Unsupported:
        _has_look_up = False
        return None
    except OSError:
        return UNKNOWN


def _finds_own_connection() -> bool:
    """Whether the kernel finds a known connection; without its module it finds none."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        client.connect(listener.getsockname())
        return find_socket(client.getsockname(), listener.getsockname()) is not None


def listener_uid(address: str, port: int) -> int | None:
    """The owner of the socket that listens at this address; None when there is none."""
    try:
        found = find_socket((address, port), (address, 0))
    except (Unsupported, OSError):
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
