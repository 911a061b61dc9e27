"""Publish changes of the queue to all open streams: one watcher, numbered events, a ring buffer.

The watcher thread (client/live/state_watcher.py) runs while a stream is open. It reads the live
state and publishes the difference to the previous one. Overviews are read through the hub as well,
so an overview and the events after its number fit together without a gap, even if no stream was
open in between.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from stoker.client.live.live_state import LiveState, LiveStateReader, wait_json
from stoker.client.live.state_watcher import StateWatcher
from stoker.client.queue import Queue
from stoker.client.views import job as views
from stoker.client.views.job_waits import Wait
from stoker.engine.daemon.gpus.process_owners import user_name
from stoker.engine.model import LOCAL
from stoker.record import Record
from stoker.settings import Settings
from stoker.web.responses import encode, refusal_response


def overview(
    state: LiveState, event: int, read_only: bool, default_backend: str
) -> dict[str, object]:
    return {
        "now": views.iso(state.at),
        "event_id": event,
        "read_only": read_only,
        "user": user_name(os.geteuid()),
        "host": os.uname().nodename,
        "daemon": state.daemon,
        "gpus": state.gpus,
        "gpu_error": state.gpu_error,
        "backends": state.backends,
        "resources": state.host,
        "default_backend": default_backend,
        "running": [state.job(id) for id in state.running],
        "queue": [state.job(id) for id in state.queue],
        "recent": [state.job(id) for id in state.recent],
        "counts": state.counts,
        "sweeps": list(state.sweeps.values()),
    }


def difference(old: LiveState, new: LiveState) -> dict[str, object] | None:
    """The content of the event that turns `old` into `new`; None when nothing changed."""
    changed = [
        id
        for id, text in new.serialized.items()
        if old.serialized.get(id) != text or (id in new.waits) != (id in old.waits)
    ]
    removed = [id for id in old.jobs if id not in new.jobs]
    sweeps = [sweep for name, sweep in new.sweeps.items() if old.sweeps.get(name) != sweep]
    removed_sweeps = [name for name in old.sweeps if name not in new.sweeps]
    sent = set(changed)
    changed_waits = {}
    for id, wait in new.waits.items():
        if id in sent:
            continue
        if _differs(old.waits[id], wait):
            changed_waits[id] = wait_json(wait, new.at)
        else:
            new.waits[id] = old.waits[id]  # what clients have; small changes add up
    changed_runs = {}
    for id, run in new.runs.items():
        if id in sent:
            continue
        if id not in old.runs or run.differs(old.runs[id], new.at):
            changed_runs[id] = run.as_json(new.at)
        else:
            new.runs[id] = old.runs[id]
    is_same = (
        old.gpus,
        old.gpu_error,
        old.counts,
        old.daemon,
        old.queue,
        old.backends,
        old.host,
    ) == (new.gpus, new.gpu_error, new.counts, new.daemon, new.queue, new.backends, new.host)
    if is_same and not (
        changed or removed or sweeps or removed_sweeps or changed_waits or changed_runs
    ):
        return None
    content: dict[str, object] = {
        "now": views.iso(new.at),
        "counts": new.counts,
        "gpus": new.gpus,
        "gpu_error": new.gpu_error,
        "resources": new.host,
        "daemon": new.daemon,
        "jobs": [new.job(id) for id in changed],
        "removed": removed,
        "sweeps": sweeps,
        "removed_sweeps": removed_sweeps,
        "waits": changed_waits,
        "runs": changed_runs,
    }
    if old.queue != new.queue:
        content["queue"] = list(new.queue)
    if old.backends != new.backends:  # a cluster may have thousands of nodes
        content["backends"] = new.backends
    return content


def _differs(old: Wait, new: Wait) -> bool:
    """Whether clients need an update; a start time that moved by a few seconds does not count."""
    if (old.ready, old.short) != (new.ready, new.short):
        return True
    if old.why != new.why or old.starts_at is None or new.starts_at is None:
        return (old.why, old.starts_at is None) != (new.why, new.starts_at is None)
    return abs(old.starts_at - new.starts_at) > 5.0


_PING_SECONDS = 15.0
_SEND_TIMEOUT_SECONDS = 5.0  # a client that reads nothing for this long is dropped
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),
]


class Stream(Response):
    """Ends when the client disconnects, falls behind or logs out, or when the server stops."""

    def __init__(self, hub: EventHub, after: int | None, is_allowed: Callable[[], bool]) -> None:
        super().__init__()
        self._hub = hub
        self._after = after
        self._is_allowed = is_allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        abort: Callable[[], None] = scope.get("extensions", {}).get("stoker.abort", lambda: None)
        client = self._hub.subscribe(self._after, abort)
        if client is None:
            await refusal_response(503, "too_many", "too many browser tabs are open")(
                scope, receive, send
            )
            return
        disconnected = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await self._pump(client, disconnected, send)
        except TimeoutError:
            abort()  # the client does not read
            await asyncio.sleep(0)  # let the connection handle the abort
        finally:
            self._hub.unsubscribe(client)
            disconnected.cancel()

    async def _pump(self, client: Client, disconnected: asyncio.Future[None], send: Send) -> None:
        while not disconnected.done():
            next_event = asyncio.ensure_future(client.events.get())
            waiting: set[asyncio.Future[Any]] = {next_event, disconnected}
            await asyncio.wait(waiting, timeout=_PING_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if next_event.done():
                data = next_event.result()
            else:
                next_event.cancel()
                data = b": ping\n\n"
            if not self._is_allowed():
                data = None
            is_last = data is None
            message = {"type": "http.response.body", "body": data or b"", "more_body": not is_last}
            await asyncio.wait_for(send(message), _SEND_TIMEOUT_SECONDS)
            if is_last:
                return


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


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
