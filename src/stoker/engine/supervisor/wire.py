"""Messages between daemon and runner: JSON lines over a Unix stream, any size, never blocking.

    ["KIND", {"field": value, ...}]

Both ends send `hello` with their protocol version first. Fields are read by name, and unknown
fields and kinds are ignored, so releases can be mixed.

File descriptors are sent with SCM_RIGHTS, not later than the message that they belong to.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from stoker import __version__

PROTOCOL = 2
Message = tuple[str, dict[str, Any]]
_encode = json.JSONEncoder(separators=(",", ":")).encode
_decode = json.JSONDecoder().decode
_DESCRIPTORS_AT_ONCE = 100
_ANCILLARY_BYTES = socket.CMSG_SPACE(_DESCRIPTORS_AT_ONCE * 4)


class Wire:
    """One end of a connection that may break at any time."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket = connection
        self._incoming = b""
        self._outgoing = bytearray()
        self._sending: list[int] = []  # descriptors to send
        self._received: list[int] = []
        self.protocol: int | None = None  # of the other end; None: not known yet
        self.release: str | None = None  # of the other end
        self.send("hello", {"protocol": PROTOCOL, "release": __version__})

    def fileno(self) -> int:
        return self.socket.fileno()

    @property
    def has_backlog(self) -> bool:
        """Whether data waits until the other end reads."""
        return bool(self._outgoing)

    def put(self, kind: str, fields: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Queue a message for the next flush, so that several messages wake the other end once.

        Descriptors are closed after they were sent.
        """
        self._outgoing += _encode((kind, fields)).encode() + b"\n"
        self._sending += descriptors

    def send(self, kind: str, fields: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Queue a message and flush."""
        self.put(kind, fields, descriptors)
        self.flush()

    def flush(self) -> None:
        try:
            while self._outgoing:
                if self._sending:
                    few = self._sending[:_DESCRIPTORS_AT_ONCE]
                    # Send them with the first byte, so that they never arrive after the message.
                    sent = socket.send_fds(self.socket, [self._outgoing[:1]], few)
                    del self._sending[: len(few)]
                    _close(few)
                else:
                    sent = self.socket.send(self._outgoing)
                del self._outgoing[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._outgoing.clear()  # the other end died; `receive` reports that
            _close(self._sending)
            self._sending.clear()

    def take_descriptors(self, count: int) -> list[int]:
        """The next `count` descriptors, for the message that is being handled."""
        taken, self._received = self._received[:count], self._received[count:]
        return taken

    def receive(self) -> tuple[list[Message], bool]:
        """(messages, whether the other end is alive)."""
        is_alive = True
        try:
            while True:
                # Not socket.recv_fds: it does not set close-on-exec, so jobs would inherit them.
                data, ancillary, _, _ = self.socket.recvmsg(
                    1 << 16, _ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC
                )
                for _, _, packed in ancillary:
                    self._received += memoryview(packed).cast("i").tolist()
                if not data:
                    is_alive = False
                    break
                self._incoming += data
        except BlockingIOError:
            pass
        except OSError:
            is_alive = False
        *lines, self._incoming = self._incoming.split(b"\n")
        return [message for line in lines if (message := self._read(line)) is not None], is_alive

    def _read(self, line: bytes) -> Message | None:
        """A message as kind and fields; None if it is `hello` or invalid."""
        try:
            kind, *rest = _decode(line.decode())
            if kind == "hello":
                self.protocol = int(rest[0]["protocol"])
                self.release = rest[0].get("release")
                return None
            return kind, rest[0] if rest else {}
        except (ValueError, TypeError, KeyError, IndexError) as error:
            note(f"ignoring an invalid message ({error}): {line[:200]!r}")
            return None

    def close(self) -> None:
        self.socket.close()
        _close([*self._sending, *self._received])
        self._sending.clear()
        self._received.clear()


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def note(text: str) -> None:
    """Write a line to the daemon's log, which is stderr of daemon and runner."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    with suppress(OSError):
        os.write(2, f"{stamp} {text}\n".encode("utf-8", "backslashreplace"))
