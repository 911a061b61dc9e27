"""Wait for changes without polling: the daemon sends a byte after each commit."""

from __future__ import annotations

import select
import socket

from stoker.engine.daemon.wake import CHANGES_SOCKET
from stoker.engine.supervisor.sockets import connect

# Without a daemon nothing changes; try to connect to one at this interval.
_RECONNECT_SECONDS = 0.5
# A commit between connect() and the accept() of the daemon is not announced to this client, so the
# first timeouts are short.
_FIRST_SECONDS = 0.1
_MAX_SECONDS = 2.0


class ChangeFeed:
    """A connection to the daemon of one state folder; reconnects when the daemon restarts."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._socket: socket.socket | None = None
        self._longest = _FIRST_SECONDS
        self._connect()

    def _connect(self) -> None:
        try:
            self._socket = connect(self._folder, CHANGES_SOCKET)
            self._socket.setblocking(False)
            self._longest = _FIRST_SECONDS
        except OSError:
            self._socket = None

    @property
    def is_connected(self) -> bool:
        """Whether a daemon was running after the last wait."""
        return self._socket is not None

    def wait(self, timeout: float | None, also: int | None = None) -> None:
        """Block until a change, until `also` is readable, or for `timeout` seconds.

        May also return early without a change: callers check their condition in a loop.
        """
        if self._socket is None:
            self._connect()
        longest = _RECONNECT_SECONDS if self._socket is None else self._longest
        self._longest = min(2 * self._longest, _MAX_SECONDS)
        pause = longest if timeout is None else max(0.0, min(timeout, longest))
        # poll, not select: a program that uses the Python API may have more than 1024 open files.
        watched = select.poll()
        if also is not None:
            watched.register(also, select.POLLIN)
        if self._socket is not None:
            watched.register(self._socket, select.POLLIN)
        ready = {number for number, _ in watched.poll(pause * 1000)}
        if self._socket is not None and self._socket.fileno() in ready:
            try:
                if not self._socket.recv(4096):
                    raise ConnectionError
            except BlockingIOError:
                pass
            except OSError:
                self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
