"""Connections to queues, one per thread, for the Python API and the web server."""

from __future__ import annotations

import atexit
import os
import threading

from stoker.client.queue import Queue
from stoker.engine.store.database import FILE_NAME
from stoker.errors import NotFound
from stoker.settings import Settings


class _Local(threading.local):
    def __init__(self) -> None:
        self.pid = os.getpid()
        self.queues = _OwnQueues()


class _OwnQueue(Queue):
    """A connection of one thread, with the inode of the database file that it opened."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._inode = _inode(settings.state_dir)

    def is_current(self) -> bool:
        """Whether the path still names the open file; a repair replaces the file."""
        return _inode(self.settings.state_dir) == self._inode

    def close(self) -> None:
        self.db.close()


class _OwnQueues(list[_OwnQueue]):
    """The connections of one thread, the oldest first.

    They are closed when the thread ends, and by the thread: only it refers to this list, while an
    exception may refer to a connection for longer, and other threads cannot close one.
    """

    def __del__(self) -> None:
        try:
            while self:
                self.pop().close()
        except Exception:  # the interpreter is shutting down
            pass


_local = _Local()
_MAX_QUEUES = 8
_forked: list[object] = []


def thread_queue(settings: Settings, *, creates: bool = True) -> Queue:
    """This thread's connection to a queue; SQLite connections must not cross threads or forks.

    Raises NotFound if there is no queue and `creates` is False.
    """
    if _local.pid != os.getpid():
        _forked.append(_local.queues)  # closing them here would drop the parent's locks
        _local.pid, _local.queues = os.getpid(), _OwnQueues()
    # Compared, not hashed: settings contain tables.
    queue = next((one for one in _local.queues if one.settings == settings), None)
    if queue is not None and not queue.is_current():
        _local.queues.remove(queue)
        queue.close()
        queue = None
    if queue is None:
        if not creates and _inode(settings.state_dir) is None:
            raise NotFound(
                f"there is no queue in `{settings.state_dir}`",
                "the state folder was deleted or moved",
            )
        if len(_local.queues) >= _MAX_QUEUES:
            _local.queues.pop(0).close()
        queue = _OwnQueue(settings)
        _local.queues.append(queue)
    return queue


def close_thread_queues() -> None:
    """Close the connections of this thread."""
    if _local.pid == os.getpid():
        while _local.queues:
            _local.queues.pop().close()


atexit.register(close_thread_queues)  # of the main thread


def _inode(state_dir: str) -> int | None:
    try:
        return os.stat(os.path.join(state_dir, FILE_NAME)).st_ino
    except OSError:
        return None
