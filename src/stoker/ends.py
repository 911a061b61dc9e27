"""Waiting for ends: one connection and one query per change, however many jobs are waited for.

`Ends` blocks the thread that calls it. `Watcher` is one thread for all who cannot block: asyncio
and the executor.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from stoker.api import Queue
from stoker.news import News
from stoker.settings import Settings
from stoker.store.ends import ended_among

Ended = tuple[int, str | None]  # id and final state; None when the job was removed

# Told once: the job's final state, or None when the job was removed.
Callback = Callable[[str | None], None]


class _OwnQueue(Queue):
    """A connection that ends with the thread it belongs to."""

    def __del__(self) -> None:
        try:
            self.db.close()
        except Exception:  # the interpreter is going down, or it was never opened
            pass


class _Local(threading.local):
    def __init__(self) -> None:
        self.pid = os.getpid()
        self.queues: dict[Settings, _OwnQueue] = {}


_local = _Local()
_MOST_QUEUES = 8


def open_queue(settings: Settings) -> Queue:
    """This thread's connection to a queue; SQLite's must not cross threads or forks."""
    if _local.pid != os.getpid():
        _forked.append(_local.queues)  # closing them here would drop the parent's locks
        _local.pid, _local.queues = os.getpid(), {}
    queue = _local.queues.get(settings)
    if queue is None:
        if len(_local.queues) >= _MOST_QUEUES:
            _local.queues.pop(next(iter(_local.queues)))
        queue = _local.queues[settings] = _OwnQueue(settings)
    return queue


_forked: list[object] = []


class Ends:
    """The ends of some jobs, as they come."""

    def __init__(self, settings: Settings, ids: Iterable[int]) -> None:
        self._settings = settings
        self._left = list(dict.fromkeys(ids))

    def until(self, deadline: float | None) -> Iterator[Ended]:
        """One after the other, by time of ending; TimeoutError at `deadline` (monotonic)."""
        for group in self.groups(deadline):
            yield from group

    def groups(self, deadline: float | None) -> Iterator[list[Ended]]:
        """All that have ended since the last look, at least one at a time."""
        if ended := self._look():
            yield ended
        if not self._left:
            return
        news = News(self._settings.state_dir)
        try:
            open_queue(
                self._settings
            ).wake()  # whatever they wait for, without a daemon it never comes
            while True:
                if ended := self._look():
                    yield ended
                if not self._left:
                    return
                rest = None if deadline is None else deadline - time.monotonic()
                if rest is not None and rest <= 0:
                    raise TimeoutError
                news.wait(rest)
        finally:
            news.close()

    def _look(self) -> list[Ended]:
        ended = ended_among(open_queue(self._settings).db, self._left)
        if ended:
            gone = {job for job, _ in ended}
            self._left = [job for job in self._left if job not in gone]
        return ended


class Watcher:
    """Tells when jobs end, from a thread of its own that lives as long as it has to."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._callbacks: dict[int, list[Callback]] = {}
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._is_running = False

    def add(self, job: int, callback: Callback) -> None:
        """Call back once when the job has ended, from the watcher's thread."""
        with self._lock:
            self._callbacks.setdefault(job, []).append(callback)
            if self._is_running:
                os.eventfd_write(self._bell, 1)
                return
            self._is_running = True
        threading.Thread(target=self._watch, name="stoker-watcher", daemon=True).start()

    def forget(self, job: int, callback: Callback) -> None:
        """Whoever asked does not wait any more."""
        with self._lock:
            callbacks = self._callbacks.get(job, [])
            if callback in callbacks:
                callbacks.remove(callback)
                if not callbacks:
                    del self._callbacks[job]

    def _watch(self) -> None:
        news = News(self._settings.state_dir)
        try:
            _try(lambda: open_queue(self._settings).wake())
            while True:
                _try(self._tell)
                with self._lock:
                    if not self._callbacks:
                        self._is_running = False
                        return
                news.wait(None, self._bell)
                self._quiet()
        finally:
            news.close()

    def _tell(self) -> None:
        with self._lock:
            ids = list(self._callbacks)
        for job, state in ended_among(open_queue(self._settings).db, ids):
            with self._lock:
                callbacks = self._callbacks.pop(job, ())
            for callback in callbacks:
                _try(lambda call=callback, state=state: call(state))  # type: ignore[misc]

    def _quiet(self) -> None:
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            pass


def _try(step: Callable[[], object]) -> None:
    """A full disk, a busy database, a closed loop: those who wait go on waiting."""
    try:
        step()
    except Exception:
        pass


_watchers: dict[tuple[int, Settings], Watcher] = {}
_watchers_lock = threading.Lock()


def watcher(settings: Settings) -> Watcher:
    """The one of this process for this queue."""
    with _watchers_lock:
        key = (os.getpid(), settings)
        if key not in _watchers:
            _watchers[key] = Watcher(settings)
        return _watchers[key]
