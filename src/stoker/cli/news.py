"""Waiting for changes without polling: the daemon sends a byte after each commit."""

from __future__ import annotations

import select
import socket
import time

from stoker.daemon.wake import NEWS_SOCKET
from stoker.supervisor.sockets import connect

# Without a daemon nothing changes, so looking for one now and then is all there is to do.
_LOOK_SECONDS = 0.5
# The daemon announces to those it has let in; what it commits between our knock and that, we miss.
_SETTLE_SECONDS = 0.1
_LONGEST_SECONDS = 2.0


class News:
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
        if self._socket is None:
            pause = _LOOK_SECONDS if timeout is None else min(timeout, _LOOK_SECONDS)
            if also is None:
                time.sleep(pause)
            else:
                select.select([also], [], [], pause)
            return
        watched = [self._socket.fileno()] + ([] if also is None else [also])
        pause = self._longest if timeout is None else min(timeout, self._longest)
        self._longest = min(2 * self._longest, _LONGEST_SECONDS)
        readable, _, _ = select.select(watched, [], [], pause)
        if self._socket.fileno() in readable:
            try:
                if not self._socket.recv(4096):
                    raise ConnectionError
            except OSError:
                self._socket.close()
                self._socket = None
