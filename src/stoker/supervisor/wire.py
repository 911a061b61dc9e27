"""Messages between daemon and runner: JSON lines over a Unix stream, any size, never blocking."""

from __future__ import annotations

import json
import socket
from typing import Any

_encode = json.JSONEncoder(separators=(",", ":")).encode
_decode = json.JSONDecoder().decode


class Wire:
    """One end of a connection that may break at any time."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket = connection
        self._incoming = b""
        self._outgoing = bytearray()

    def fileno(self) -> int:
        return self.socket.fileno()

    @property
    def has_backlog(self) -> bool:
        """Whether something waits for the other end to read."""
        return bool(self._outgoing)

    def put(self, *message: object) -> None:
        """Say it with the next flush, so that several messages wake the other end once."""
        self._outgoing += _encode(message).encode() + b"\n"

    def send(self, *message: object) -> None:
        self.put(*message)
        self.flush()

    def flush(self) -> None:
        try:
            while self._outgoing:
                sent = self.socket.send(self._outgoing)
                del self._outgoing[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._outgoing.clear()  # the other end died; `receive` will tell

    def receive(self) -> tuple[list[list[Any]], bool]:
        """(messages, whether the other end is still there)."""
        alive = True
        try:
            while True:
                data = self.socket.recv(1 << 16)
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
