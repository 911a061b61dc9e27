"""Publish changes of the queue to all open streams: one watcher, numbered events, a ring buffer.

The watcher thread (client/live/state_watcher.py) runs while a stream is open. It reads the live
state and publishes the difference to the previous one. Overviews are read through the hub as well,
so an overview and the events after its number fit together without a gap, even if no stream was
open in between.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable

from stoker.client.live.live_state import LiveState, LiveStateReader
from stoker.client.live.state_watcher import StateWatcher
from stoker.client.queue import Queue
from stoker.engine.model import LOCAL
from stoker.record import Record
from stoker.settings import Settings
from stoker.web.responses import encode
from stoker.web.state_events import difference, overview

_MAX_EVENTS = 500
_MAX_BYTES = 8 << 20
_MAX_CLIENTS = 64
_MAX_QUEUED = 64


class Event(Record):
    id: int
    data: bytes


class Client:
    """The queue of one stream, for use in the event loop. `abort` ends a stream that is slow."""

    def __init__(self, abort: Callable[[], None]) -> None:
        self.events: asyncio.Queue[bytes | None] = asyncio.Queue(_MAX_QUEUED)
        self.abort = abort

    def put(self, data: bytes | None) -> bool:
        try:
            self.events.put_nowait(data)
        except asyncio.QueueFull:
            return False
        return True


class EventHub:
    def __init__(self, settings: Settings, reader: LiveStateReader, read_only: bool) -> None:
        self._settings = settings
        self._reader = reader
        self._read_only = read_only
        self._state_lock = threading.Lock()  # held from reading a state to publishing its event
        self._state: LiveState | None = None
        self._ring_lock = threading.Lock()  # held for a short time only
        # A server that was started later uses larger numbers, so event numbers of the previous
        # server are recognized as unknown.
        self._last = int(time.time() * 1000)
        self._ring: deque[Event] = deque()
        self._bytes = 0
        self._clients: set[Client] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._watcher = StateWatcher(settings, reader, self._publish)

    # -- in any thread -------------------------------------------------------------------------

    def overview(self, queue: Queue) -> dict[str, object]:
        with self._state_lock:
            default_backend = self._settings.backend or LOCAL
            return overview(self._refresh(queue), self._last, self._read_only, default_backend)

    def gpus_changed(self) -> None:
        """Called after a change of a GPU, by the thread that made it."""
        with self._state_lock:  # a reading that began before the change is over now
            self._reader.gpus_changed()

    def wake(self) -> None:
        """Read the state soon, without waiting for the daemon's change feed."""
        self._watcher.wake()

    def _publish(self, queue: Queue) -> None:
        with self._state_lock:
            self._refresh(queue)

    def _refresh(self, queue: Queue) -> LiveState:
        before = self._state
        state = self._reader.read(queue, before)
        self._state = state
        content = None if before is None else difference(before, state)
        if content is not None:
            number = self._last + 1
            data = encode({"event_id": number, **content})
            text = b"id: %d\nevent: change\ndata: %s\n\n" % (number, data)
            with self._ring_lock:
                self._store(Event(number, text))
                self._last = number
                if self._loop is not None and self._clients:
                    self._loop.call_soon_threadsafe(self._deliver, text)
        return state

    def _store(self, event: Event) -> None:
        self._ring.append(event)
        self._bytes += len(event.data)
        while len(self._ring) > _MAX_EVENTS or self._bytes > _MAX_BYTES:
            self._bytes -= len(self._ring.popleft().data)

    # -- in the event loop ---------------------------------------------------------------------

    def subscribe(self, after: int | None, abort: Callable[[], None]) -> Client | None:
        """Open a stream that begins after an event; None when too many are open."""
        if len(self._clients) >= _MAX_CLIENTS:
            return None
        self._loop = asyncio.get_running_loop()
        client = Client(abort)
        client.put(b"retry: 2000\n\n")
        with self._ring_lock:
            for data in self._missed(after):
                if not client.put(data):  # it missed more events than its queue holds
                    client.events = asyncio.Queue(_MAX_QUEUED)
                    client.put(self._reset())
                    break
            self._clients.add(client)
        self.wake()
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=self._watcher.run, args=(self._has_clients,), name="watcher", daemon=True
            )
            self._thread.start()
        return client

    def _has_clients(self) -> bool:
        return bool(self._clients)

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
            self.wake()  # so that the watcher ends

    def stop(self) -> None:
        """Close all streams; called in a signal handler when the server stops."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.close)

    def close(self) -> None:
        for client in list(self._clients):
            if not client.put(None):
                client.abort()
        self._clients.clear()
        self.wake()

    def _deliver(self, data: bytes) -> None:
        for client in list(self._clients):
            if not client.put(data):
                self._clients.discard(client)
                client.abort()
