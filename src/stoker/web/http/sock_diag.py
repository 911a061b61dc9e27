"""Ask the kernel about one TCP socket by its addresses (NETLINK_SOCK_DIAG, see sock_diag(7)).

The kernel uses its hash table, so the cost does not depend on the number of connections on the
host, unlike reading /proc/net/tcp.
"""

from __future__ import annotations

import errno
import os
import socket
import struct

from stoker.record import Record

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


def find(here: SocketAddress, there: SocketAddress) -> Found | None:
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
