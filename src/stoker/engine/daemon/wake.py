"""The daemon's two sockets: clients wake the daemon, and it notifies clients of changes.

A client that changed the database sends a datagram of one byte. A client that waits for changes
keeps a stream open and gets a byte after each commit. All other data goes through the database.
Only while it cannot be written, a datagram `stop JOB GRACE` stops a job, and the stream begins with
a line `!PROBLEM`.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

from stoker.engine.daemon.start import WAKE_SOCKET
from stoker.engine.supervisor.sockets import listen

CHANGES_SOCKET = "news.sock"  # clients of release 0.1 use this name
# Further clients are refused and poll the database instead.
_MAX_WATCHERS = 200
_QUIET_SECONDS = 0.05


class WakeServer:
    """The daemon's end of both sockets."""

    def __init__(self, folder: str) -> None:
        self.changes_socket = listen(folder, CHANGES_SOCKET)
        # Last: clients take a daemon that can be woken for one that has started.
        self.wake_socket = listen(folder, WAKE_SOCKET, socket.SOCK_DGRAM)
        self._watchers: list[socket.socket] = []
        self._quiet_until = 0.0
        self.notify_at: float | None = None  # when a delayed notification is due
        self._paths = [os.path.join(folder, name) for name in (WAKE_SOCKET, CHANGES_SOCKET)]

    def drain(self) -> list[tuple[int, float | None]]:
        """Read all datagrams; returns the jobs to stop and their grace periods."""
        stops: list[tuple[int, float | None]] = []
        try:
            while True:
                words = self.wake_socket.recv(64).split()
                if len(words) == 3 and words[0] == b"stop":
                    with suppress(ValueError):
                        stops.append((int(words[1]), _grace(words[2])))
        except BlockingIOError:
            return stops

    def accept(self, problem: str | None) -> None:
        try:
            watcher, _ = self.changes_socket.accept()
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
        self._notify_one(watcher)  # of changes since it connected

    def notify(self, now: float) -> None:
        """Notify all watchers of a change, at most 20 times per second."""
        if now < self._quiet_until:
            self.notify_at = self._quiet_until
            return
        self._quiet_until, self.notify_at = now + _QUIET_SECONDS, None
        for watcher in self._watchers[:]:
            self._notify_one(watcher)

    def _notify_one(self, watcher: socket.socket) -> None:
        try:
            watcher.send(b"n")
        except BlockingIOError:
            pass  # it has an unread notification already
        except OSError:  # disconnected
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
