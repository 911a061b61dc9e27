"""One watcher for all who listen: sees what changed, numbers it, hands it out.

The thread lives while somebody listens. It wakes for the daemon's news, not by the clock, looks at
most four times a second, and sends what differs from the look before. Every look of anybody (an
overview is one) goes through here, so an overview and the events after its number fit together
without a gap, also when nobody listened in between.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable

from stoker.client.change_feed import ChangeFeed
from stoker.client.finish_watch import open_queue
from stoker.client.queue import Queue
from stoker.core.record import Record
from stoker.errors import Error
from stoker.settings import Settings
from stoker.web.page_state import PageState, PageStateReader, difference, overview
from stoker.web.responses import encode

_BEAT_SECONDS = 0.25
_TROUBLE_SECONDS = 5.0
_MOST_EVENTS = 500
_MOST_BYTES = 8 << 20
_MOST_CLIENTS = 64
_MOST_QUEUED = 64


class Event(Record):
    id: int
    data: bytes


class Client:
    """One stream. Belongs to the event loop; `gone` is called when it cannot keep up."""

    def __init__(self, gone: Callable[[], None]) -> None:
        self.events: asyncio.Queue[bytes | None] = asyncio.Queue(_MOST_QUEUED)
        self.gone = gone

    def put(self, data: bytes | None) -> bool:
        try:
            self.events.put_nowait(data)
        except asyncio.QueueFull:
            return False
        return True


class EventHub:
    def __init__(self, settings: Settings, looker: PageStateReader, read_only: bool) -> None:
        self._settings = settings
        self._looker = looker
        self._read_only = read_only
        self._looking = threading.Lock()  # one looks at a time, and tells before the next looks
        self._seen: PageState | None = None
        self._telling = threading.Lock()  # over the ring; never held for long
        # A server that was started later has larger numbers, so those of the one before are
        # recognised as unknown.
        self._last = self._first = int(time.time() * 1000)
        self._ring: deque[Event] = deque()
        self._bytes = 0
        self._clients: set[Client] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    # -- in any thread -------------------------------------------------------------------------

    def overview(self, queue: Queue) -> dict[str, object]:
        with self._looking:
            return overview(self._look(queue), self._last, self._read_only)

    def nudge(self) -> None:
        """Something was changed here, and the page should not wait for the daemon to say so."""
        try:
            os.eventfd_write(self._bell, 1)
        except BlockingIOError:
            pass

    def _look(self, queue: Queue) -> PageState:
        before = self._seen
        seen = self._looker.look(queue, before)
        self._seen = seen
        content = None if before is None else difference(before, seen)
        if content is not None:
            number = self._last + 1
            data = encode({"event_id": number, **content})
            text = b"id: %d\nevent: change\ndata: %s\n\n" % (number, data)
            with self._telling:
                self._keep(Event(number, text))
                self._last = number
                if self._loop is not None and self._clients:
                    self._loop.call_soon_threadsafe(self._deliver, text)
        return seen

    def _keep(self, event: Event) -> None:
        self._ring.append(event)
        self._bytes += len(event.data)
        while len(self._ring) > _MOST_EVENTS or self._bytes > _MOST_BYTES:
            self._bytes -= len(self._ring.popleft().data)

    # -- in the event loop ---------------------------------------------------------------------

    def subscribe(self, after: int | None, gone: Callable[[], None]) -> Client | None:
        """A stream that begins behind an event; None when there are too many."""
        if len(self._clients) >= _MOST_CLIENTS:
            return None
        self._loop = asyncio.get_running_loop()
        client = Client(gone)
        client.put(b"retry: 2000\n\n")
        with self._telling:
            for data in self._missed(after):
                if not client.put(data):  # further behind than we keep for anybody
                    client.events = asyncio.Queue(_MOST_QUEUED)
                    client.put(self._reset())
                    break
            self._clients.add(client)
        self.nudge()
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)
            self._thread.start()
        return client

    def _missed(self, after: int | None) -> list[bytes]:
        if after is None or after == self._last:
            return []
        oldest = self._ring[0].id - 1 if self._ring else self._last
        if not oldest <= after < self._last:
            return [self._reset()]
        return [event.data for event in self._ring if event.id > after]

    def _reset(self) -> bytes:
        data = encode({"event_id": self._last})
        return b"id: %d\nevent: reset\ndata: %s\n\n" % (self._last, data)

    def unsubscribe(self, client: Client) -> None:
        self._clients.discard(client)
        if not self._clients:
            self.nudge()  # the watcher may go

    def stop(self) -> None:
        """The server ends (called in a signal handler): streams end in good order."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.close)

    def close(self) -> None:
        for client in list(self._clients):
            if not client.put(None):
                client.gone()
        self._clients.clear()
        self.nudge()

    def _deliver(self, data: bytes) -> None:
        for client in list(self._clients):
            if not client.put(data):
                self._clients.discard(client)
                client.gone()

    # -- the watcher ---------------------------------------------------------------------------

    def _watch(self) -> None:
        news = ChangeFeed(self._settings.state_dir)
        version, due = -1, 0.0
        try:
            while self._clients:
                is_rung = self._is_rung()
                now = time.monotonic()
                try:
                    queue = open_queue(self._settings)
                    newest = queue.db.data_version()
                    if is_rung or newest != version or now >= due:
                        version = newest
                        with self._looking:
                            self._look(queue)
                        due = time.monotonic() + (self._looker.late() or self._looker.idle)
                        # Several changes make one event.
                        time.sleep(max(0.0, now + _BEAT_SECONDS - time.monotonic()))
                except (Error, sqlite3.Error):
                    due = now + _TROUBLE_SECONDS  # a busy or full disk: a later look may do better
                news.wait(max(0.01, due - time.monotonic()), also=self._bell)
        finally:
            news.close()

    def _is_rung(self) -> bool:
        try:
            return os.eventfd_read(self._bell) > 0
        except BlockingIOError:
            return False
