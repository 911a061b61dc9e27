"""Pokes in, news out.

A client that changed the database pokes: one datagram of one byte. A client that waits for changes
keeps a stream open and gets a byte after commits. The database is the protocol; only while it
cannot be written, a datagram `stop JOB GRACE` stops a job, and the stream begins with a line
`!PROBLEM`.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

from stoker.daemon.start import POKE_SOCKET
from stoker.supervisor.sockets import listen

NEWS_SOCKET = "news.sock"
# Beyond this, further clients are turned away and look by themselves now and then.
_MAX_WATCHERS = 200
_QUIET_SECONDS = 0.05


class WakeServer:
    """The daemon's side."""

    def __init__(self, folder: str) -> None:
        self.pokes = listen(folder, POKE_SOCKET, socket.SOCK_DGRAM)
        self.news = listen(folder, NEWS_SOCKET)
        self._watchers: list[socket.socket] = []
        self._quiet_until = 0.0
        self.announce_at: float | None = None  # when news that were held back are due
        self._paths = [os.path.join(folder, name) for name in (POKE_SOCKET, NEWS_SOCKET)]

    def drain(self) -> list[tuple[int, float | None]]:
        """Take all pokes; the jobs (with their grace) that are to be stopped without a record."""
        stops: list[tuple[int, float | None]] = []
        try:
            while True:
                words = self.pokes.recv(64).split()
                if len(words) == 3 and words[0] == b"stop":
                    with suppress(ValueError):
                        stops.append((int(words[1]), _grace(words[2])))
        except BlockingIOError:
            return stops

    def accept(self, problem: str | None) -> None:
        try:
            watcher, _ = self.news.accept()
        except OSError:
            return
        watcher.setblocking(False)
        if len(self._watchers) >= _MAX_WATCHERS:
            watcher.close()
            return
        self._watchers.append(watcher)
        if problem is not None:
            with suppress(OSError):
                watcher.send(f"!{problem}\n".encode("utf-8", "backslashreplace")[:1000])
        self._tell(watcher)  # whatever happened between its connect and now

    def announce(self, now: float) -> None:
        """Something changed: tell at once, but under a stream of changes not more than 20/s."""
        if now < self._quiet_until:
            self.announce_at = self._quiet_until
            return
        self._quiet_until, self.announce_at = now + _QUIET_SECONDS, None
        for watcher in self._watchers[:]:
            self._tell(watcher)

    def _tell(self, watcher: socket.socket) -> None:
        try:
            watcher.send(b"n")
        except BlockingIOError:
            pass  # it has news waiting anyway
        except OSError:  # gone, perhaps before it was accepted
            watcher.close()
            self._watchers.remove(watcher)

    def close(self) -> None:
        for path in self._paths:
            try:
                os.unlink(path)
            except OSError:  # gone, or on a read-only disk
                pass


def _grace(word: bytes) -> float | None:
    return None if word == b"-" else float(word)
