"""Messages between daemon and runner: JSON lines over a Unix stream, any size, never blocking.

Descriptors travel beside them (SCM_RIGHTS), never later than the message that speaks of them.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from typing import Any

_encode = json.JSONEncoder(separators=(",", ":")).encode
_decode = json.JSONDecoder().decode
_DESCRIPTORS_AT_ONCE = 100
_BESIDE_BYTES = socket.CMSG_SPACE(_DESCRIPTORS_AT_ONCE * 4)


class Wire:
    """One end of a connection that may break at any time."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket = connection
        self._incoming = b""
        self._outgoing = bytearray()
        self._leaving: list[int] = []  # descriptors that the other end gets
        self._arrived: list[int] = []

    def fileno(self) -> int:
        return self.socket.fileno()

    @property
    def has_backlog(self) -> bool:
        """Whether something waits for the other end to read."""
        return bool(self._outgoing)

    def put(self, *message: object) -> None:
        """Say it with the next flush, so that several messages wake the other end once."""
        self._outgoing += _encode(message).encode() + b"\n"

    def send(self, *message: object, descriptors: Sequence[int] = ()) -> None:
        """Descriptors that are sent are closed here: they are the other end's then."""
        self.put(*message)
        self._leaving += descriptors
        self.flush()

    def flush(self) -> None:
        try:
            while self._outgoing:
                if self._leaving:
                    few = self._leaving[:_DESCRIPTORS_AT_ONCE]
                    # One byte is enough to carry them, and then the rest cannot overtake them.
                    sent = socket.send_fds(self.socket, [self._outgoing[:1]], few)
                    del self._leaving[: len(few)]
                    _close(few)
                else:
                    sent = self.socket.send(self._outgoing)
                del self._outgoing[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._outgoing.clear()  # the other end died; `receive` will tell
            _close(self._leaving)
            self._leaving.clear()

    def take_descriptors(self, count: int) -> list[int]:
        """Those that came with the message at hand."""
        taken, self._arrived = self._arrived[:count], self._arrived[count:]
        return taken

    def receive(self) -> tuple[list[list[Any]], bool]:
        """(messages, whether the other end is still there)."""
        alive = True
        try:
            while True:
                # Not socket.recv_fds: it forgets the flag, and jobs would inherit all of them.
                data, beside, _, _ = self.socket.recvmsg(
                    1 << 16, _BESIDE_BYTES, socket.MSG_CMSG_CLOEXEC
                )
                for _, _, packed in beside:
                    self._arrived += memoryview(packed).cast("i").tolist()
                if not data:
                    alive = False
                    break
                self._incoming += data
        except BlockingIOError:
            pass
        except OSError:
            alive = False
        *lines, self._incoming = self._incoming.split(b"\n")
        return [_decode(line.decode()) for line in lines], alive

    def close(self) -> None:
        self.socket.close()
        _close([*self._leaving, *self._arrived])
        self._leaving.clear()
        self._arrived.clear()


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
