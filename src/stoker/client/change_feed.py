"""Waiting for changes without polling: the daemon sends a byte after each commit."""

from __future__ import annotations

import select
import socket

from stoker.daemon.wake import NEWS_SOCKET
from stoker.supervisor.sockets import connect

# Without a daemon nothing changes, so looking for one now and then is all there is to do.
_LOOK_SECONDS = 0.5
# The daemon announces to those it has let in; what it commits between our knock and that, we miss.
_SETTLE_SECONDS = 0.1
_LONGEST_SECONDS = 2.0


class ChangeFeed:
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._socket: socket.socket | None = None
        self._longest = _SETTLE_SECONDS
        self._connect()

    def _connect(self) -> None:
        try:
            self._socket = connect(self._folder, NEWS_SOCKET)
            self._socket.setblocking(False)
            self._longest = _SETTLE_SECONDS
        except OSError:
            self._socket = None

    def wait(self, timeout: float | None, also: int | None = None) -> None:
        """Return after a change (or when `also` can be read), after `timeout`, or now and then."""
        if self._socket is None:
            self._connect()
        longest = _LOOK_SECONDS if self._socket is None else self._longest
        self._longest = min(2 * self._longest, _LONGEST_SECONDS)
        pause = longest if timeout is None else max(0.0, min(timeout, longest))
        # Not select.select: programs that use us may have more than 1024 files open.
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
