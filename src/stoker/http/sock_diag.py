"""Ask the kernel about one TCP socket by its addresses (NETLINK_SOCK_DIAG, see sock_diag(7)).

The kernel looks the socket up in its hash table: the price does not grow with the number of
connections on the host, as that of reading /proc/net/tcp does.
"""

from __future__ import annotations

import errno
import os
import socket
import struct

from stoker.core.record import Record

Place = tuple[str, int]  # an address in numbers, and a port

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
_ANSWER = struct.Struct("=BBBB48sIIIII")  # family, state, ..., id, ..., uid, inode
LISTEN = 10


class Unsupported(Exception):
    """This kernel, or this sandbox, has no such look-up."""


class Found(Record):
    state: int
    uid: int
    inode: int  # 0: no process has it open any more, and `uid` means nothing


def find(here: Place, there: Place) -> Found | None:
    """The socket at `here` that is connected to `there`; else the one that listens at `here`.

    None when there is neither. Raises Unsupported, and OSError for other trouble.
    """
    family, local, remote = _packed(here[0], there[0])
    body = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, _ANY_STATE)
    body += _ID.pack(here[1], there[1], local, remote) + _ID_END.pack(0, _NO_COOKIE, _NO_COOKIE)
    size = _HEADER.size + len(body)
    message = _HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + body
    try:
        # One for each question: no answer to another one can be left in it.
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as kernel:
            kernel.setblocking(False)  # the answer is there when sending is over
            kernel.sendto(message, (0, 0))
            answer = kernel.recv(4096)
    except BlockingIOError:
        raise Unsupported("no answer") from None
    except OSError as error:
        if error.errno in _MISSING:
            raise Unsupported(str(error)) from None
        raise
    return _read(answer, _ID.pack(here[1], there[1], local, remote))


_MISSING = (errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT, errno.EPERM, errno.EACCES, errno.EINVAL,
            errno.ECONNREFUSED, errno.EOPNOTSUPP, errno.ENOSYS)  # fmt: skip


def _read(answer: bytes, asked: bytes) -> Found | None:
    _, kind, _, _, _ = _HEADER.unpack_from(answer)
    if kind == _NLMSG_ERROR:
        number = -struct.unpack_from("=i", answer, _HEADER.size)[0]
        if number == errno.ENOENT:
            return None
        if number in _MISSING:
            raise Unsupported(os.strerror(number))
        raise OSError(number, os.strerror(number))
    if kind != _SOCK_DIAG_BY_FAMILY or len(answer) < _HEADER.size + _ANSWER.size:
        raise Unsupported("an unknown answer")
    found = _ANSWER.unpack_from(answer, _HEADER.size)
    state, id, uid, inode = found[1], found[4], found[8], found[9]
    # A connection that is gone is answered by whatever listens on its port: not the same socket.
    if state != LISTEN and id[:4] != asked[:4]:
        return None
    return Found(state, uid, inode)


def _packed(local: str, remote: str) -> tuple[int, bytes, bytes]:
    """The family, and both addresses in sixteen bytes."""
    local, remote = local.partition("%")[0], remote.partition("%")[0]
    family = socket.AF_INET6 if ":" in local else socket.AF_INET
    pair = [socket.inet_pton(family, one).ljust(16, b"\0") for one in (local, remote)]
    return int(family), pair[0], pair[1]
