"""Wait until jobs finish: one connection and one query per change for any number of jobs.

`FinishWatch` blocks the calling thread. `Watcher` calls back from its own thread, for asyncio and
the executor.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from stoker.client.live.change_feed import ChangeFeed
from stoker.client.queue_connections import close_thread_queues, thread_queue
from stoker.engine.store.job_queries import ended_among
from stoker.errors import NotFound
from stoker.settings import Settings

Ended = tuple[int, str | None]  # id and final state; None when the job was removed

# Called once with the final state of the job; None if the job or its queue was removed.
Callback = Callable[[str | None], None]

_RETRY_SECONDS = 0.5


class FinishWatch:
    """Yields jobs of a set as they finish. `on_wait` is called whenever it is about to block."""

    def __init__(
        self,
        settings: Settings,
        ids: Iterable[int],
        on_wait: Callable[[], None] | None = None,
    ) -> None:
        self._settings = settings
        self._left = list(dict.fromkeys(ids))
        self._on_wait = on_wait

    def until(self, deadline: float | None) -> Iterator[Ended]:
        """Yield jobs in the order in which they finish. Raises TimeoutError at `deadline`
        (monotonic)."""
        for group in self.groups(deadline):
            yield from group

    def groups(self, deadline: float | None) -> Iterator[list[Ended]]:
        """Yield lists of the jobs that finished since the last check; no list is empty."""
        if ended := self._finished():
            yield ended
        if not self._left:
            return
        changes = ChangeFeed(self._settings.state_dir)
        try:
            # Without a daemon no job would finish.
            thread_queue(self._settings, creates=False).ensure_daemon()
            while True:
                if ended := self._finished():
                    yield ended
                if not self._left:
                    return
                rest = None if deadline is None else deadline - time.monotonic()
                if rest is not None and rest <= 0:
                    raise TimeoutError
                if self._on_wait is not None:
                    self._on_wait()
                changes.wait(rest)
        finally:
            changes.close()

    def _finished(self) -> list[Ended]:
        """The jobs that finished since the last call."""
        ended = ended_among(thread_queue(self._settings, creates=False).db, self._left)
        if ended:
            gone = {job for job, _ in ended}
            self._left = [job for job in self._left if job not in gone]
        return ended


class _WatcherThread(threading.Thread):
    """Runs code of users (unpickling, callbacks); their exceptions do not end the thread."""


def is_watcher_thread() -> bool:
    """Whether the calling thread is the one that calls back when jobs finish."""
    return isinstance(threading.current_thread(), _WatcherThread)


class Watcher:
    """Calls back when jobs finish, from a thread that exists while there are jobs to watch."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # Reentrant: garbage collection may run a `__del__` that submits a job.
        self._lock = threading.RLock()
        self._callbacks: dict[int, list[Callback]] = {}
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._is_running = False

    def add(self, job: int, callback: Callback) -> None:
        """Call `callback` once when the job has finished, from the thread of the watcher.

        Raises RuntimeError if no thread can be started (the interpreter is shutting down).
        """
        with self._lock:
            self._callbacks.setdefault(job, []).append(callback)
            try:
                self._ensure_thread()
            except BaseException:
                self.forget(job, callback)
                raise

    def check(self) -> None:
        """Raise RuntimeError if `add` would."""
        with self._lock:
            self._ensure_thread()

    def _ensure_thread(self) -> None:
        if self._is_running:
            os.eventfd_write(self._bell, 1)
            return
        self._is_running = True
        try:
            _WatcherThread(target=self._watch, name="stoker-watcher", daemon=True).start()
        except BaseException:
            self._is_running = False
            raise

    def forget(self, job: int, callback: Callback) -> None:
        """Remove a callback."""
        with self._lock:
            callbacks = self._callbacks.get(job, [])
            if callback in callbacks:
                callbacks.remove(callback)
                if not callbacks:
                    del self._callbacks[job]

    def close(self) -> None:
        """Close the descriptor of a watcher inherited by fork; its thread is in the parent."""
        os.close(self._bell)

    def _watch(self) -> None:
        changes: ChangeFeed | None = None
        try:
            _try(lambda: thread_queue(self._settings, creates=False).ensure_daemon())
            while True:
                self._report()
                with self._lock:
                    if not self._callbacks:
                        self._is_running = False
                        return
                try:
                    if changes is None:
                        changes = ChangeFeed(self._settings.state_dir)
                    changes.wait(None, self._bell)
                    self._clear_bell()
                except Exception:  # for example too many open files
                    time.sleep(_RETRY_SECONDS)
        finally:
            if changes is not None:
                changes.close()
            close_thread_queues()

    def _report(self) -> None:
        with self._lock:
            ids = list(self._callbacks)
        try:
            ended = ended_among(thread_queue(self._settings, creates=False).db, ids)
        except NotFound:  # the queue was deleted
            ended = [(job, None) for job in ids]
        except Exception:
            return  # a full disk or a busy database: try again after the next change
        for job, state in ended:
            with self._lock:
                callbacks = self._callbacks.pop(job, ())
            for callback in callbacks:
                _try(lambda call=callback, state=state: call(state))  # type: ignore[misc]

    def _clear_bell(self) -> None:
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            pass


def _try(step: Callable[[], object]) -> None:
    """Run a step and ignore every exception, including SystemExit from code of users."""
    try:
        step()
    except BaseException:
        pass


_watchers: dict[str, Watcher] = {}  # by state folder
_watchers_lock = threading.RLock()


def watcher(settings: Settings) -> Watcher:
    """The watcher of this process for this queue."""
    with _watchers_lock:
        if settings.state_dir not in _watchers:
            _watchers[settings.state_dir] = Watcher(settings)
        return _watchers[settings.state_dir]


def _reset_after_fork() -> None:
    """Drop the watchers in a forked process: their threads do not exist there, and may have held
    locks."""
    global _watchers_lock
    _watchers_lock = threading.RLock()
    while _watchers:
        _watchers.popitem()[1].close()


os.register_at_fork(after_in_child=_reset_after_fork)
