"""Waiting for ends: one connection and one query per change, however many jobs are waited for.

`Ends` blocks the thread that calls it. `Watcher` is one thread for all who cannot block: asyncio
and the executor.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from stoker.client.change_feed import ChangeFeed
from stoker.client.queue import Queue
from stoker.errors import NotFound
from stoker.settings import Settings
from stoker.store.database import FILE_NAME
from stoker.store.ended_jobs import ended_among

Ended = tuple[int, str | None]  # id and final state; None when the job was removed

# Called once: the job's final state, or None when the job or its queue was removed.
Callback = Callable[[str | None], None]

_PAUSE_SECONDS = 0.5


class _Local(threading.local):
    """The connections of one thread; they are closed when the thread ends."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.queues: dict[Settings, _OwnQueue] = {}


class _OwnQueue(Queue):
    """A connection of one thread, and the file that it was opened on."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._inode = _inode(settings.state_dir)

    def is_current(self) -> bool:
        """Whether the path still leads to the open file: a repair replaces the file."""
        return _inode(self.settings.state_dir) == self._inode

    def close(self) -> None:
        self.db.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # the interpreter is shutting down, or the file was never opened
            pass


_local = _Local()
_MOST_QUEUES = 8
_forked: list[object] = []


def open_queue(settings: Settings, *, creates: bool = True) -> Queue:
    """This thread's connection to a queue; SQLite connections must not cross threads or forks.

    Raises NotFound when there is no queue (it was deleted, say) and `creates` is False.
    """
    if _local.pid != os.getpid():
        _forked.append(_local.queues)  # closing them here would drop the parent's locks
        _local.pid, _local.queues = os.getpid(), {}
    queue = _local.queues.get(settings)
    if queue is not None and not queue.is_current():
        _local.queues.pop(settings).close()
        queue = None
    if queue is None:
        if not creates and _inode(settings.state_dir) is None:
            raise NotFound(
                f"there is no queue in `{settings.state_dir}`",
                "the state folder was deleted or moved, and its jobs with it",
            )
        if len(_local.queues) >= _MOST_QUEUES:
            _local.queues.pop(next(iter(_local.queues))).close()
        queue = _local.queues[settings] = _OwnQueue(settings)
    return queue


def close_queues() -> None:
    """Close the connections of this thread."""
    if _local.pid == os.getpid():
        while _local.queues:
            _local.queues.popitem()[1].close()


atexit.register(close_queues)  # those of the main thread


def _inode(state_dir: str) -> int | None:
    try:
        return os.stat(os.path.join(state_dir, FILE_NAME)).st_ino
    except OSError:
        return None


class FinishWatch:
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
        news = ChangeFeed(self._settings.state_dir)
        try:
            open_queue(
                self._settings, creates=False
            ).wake()  # without a daemon no job would ever end
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
        ended = ended_among(open_queue(self._settings, creates=False).db, self._left)
        if ended:
            gone = {job for job, _ in ended}
            self._left = [job for job in self._left if job not in gone]
        return ended


class _WatcherThread(threading.Thread):
    """Runs code of users: unpickling and callbacks. No exception of theirs ends it."""


def is_watcher_thread() -> bool:
    """Whether the caller runs on the thread that reports the ends of jobs."""
    return isinstance(threading.current_thread(), _WatcherThread)


class Watcher:
    """Reports the ends of jobs from a thread that lives while there are jobs to watch."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # Reentrant: a garbage collection inside may run a `__del__` that submits a job.
        self._lock = threading.RLock()
        self._callbacks: dict[int, list[Callback]] = {}
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._is_running = False

    def add(self, job: int, callback: Callback) -> None:
        """Call back once when the job has ended, from the watcher's thread.

        Raises RuntimeError when no thread can be started (the interpreter is shutting down).
        """
        with self._lock:
            self._callbacks.setdefault(job, []).append(callback)
            try:
                self._ensure_thread()
            except BaseException:
                self.forget(job, callback)
                raise

    def check(self) -> None:
        """Raise RuntimeError where `add` would."""
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
        """Do not call this callback any more."""
        with self._lock:
            callbacks = self._callbacks.get(job, [])
            if callback in callbacks:
                callbacks.remove(callback)
                if not callbacks:
                    del self._callbacks[job]

    def close(self) -> None:
        """Free the descriptor of a watcher whose thread is in another process."""
        os.close(self._bell)

    def _watch(self) -> None:
        news: ChangeFeed | None = None
        try:
            _try(lambda: open_queue(self._settings, creates=False).wake())
            while True:
                self._report()
                with self._lock:
                    if not self._callbacks:
                        self._is_running = False
                        return
                try:
                    if news is None:
                        news = ChangeFeed(self._settings.state_dir)
                    news.wait(None, self._bell)
                    self._quiet()
                except Exception:  # too many open files, say: look again a little later
                    time.sleep(_PAUSE_SECONDS)
        finally:
            if news is not None:
                news.close()
            close_queues()

    def _report(self) -> None:
        with self._lock:
            ids = list(self._callbacks)
        try:
            ended = ended_among(open_queue(self._settings, creates=False).db, ids)
        except NotFound:  # the queue was deleted: no job of it will ever end
            ended = [(job, None) for job in ids]
        except Exception:
            return  # a full disk, a busy database: those who wait go on waiting
        for job, state in ended:
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
    """Run a step that may fail in any way, a SystemExit in a user's code included."""
    try:
        step()
    except BaseException:
        pass


_watchers: dict[Settings, Watcher] = {}
_watchers_lock = threading.RLock()


def watcher(settings: Settings) -> Watcher:
    """The watcher of this process for this queue."""
    with _watchers_lock:
        if settings not in _watchers:
            _watchers[settings] = Watcher(settings)
        return _watchers[settings]


def _start_anew() -> None:
    """In a forked process: threads are gone, and locks may be held by threads that are gone."""
    global _watchers_lock
    _watchers_lock = threading.RLock()
    while _watchers:
        _watchers.popitem()[1].close()


os.register_at_fork(after_in_child=_start_anew)
