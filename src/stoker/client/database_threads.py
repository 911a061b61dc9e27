"""Run database work in threads, each with its own SQLite connection.

Four threads read and one writes. SQLite allows only one writer at a time, and a new job inherits
the umask, which a process can only read by setting it: two threads must not do that at once.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from stoker.client.queue import Queue
from stoker.client.queue_connections import thread_queue
from stoker.engine.store.database import translate
from stoker.errors import TimedOut, TryLater
from stoker.settings import Settings

T = TypeVar("T")
_READERS = 4
_MAX_PENDING = 100
_TIMEOUT_SECONDS = 25.0


class DatabaseThreads:
    """`creates`: whether a queue that was removed is made again."""

    def __init__(self, settings: Settings, *, creates: bool = True) -> None:
        self.settings = settings
        self._creates = creates
        self._readers = ThreadPoolExecutor(_READERS, "reader")
        self._writer = ThreadPoolExecutor(1, "writer")
        self._pending = 0

    async def read(self, work: Callable[[Queue], T]) -> T:
        return await self._run(self._readers, work)

    async def write(self, work: Callable[[Queue], T]) -> T:
        return await self._run(self._writer, work)

    async def _run(self, pool: ThreadPoolExecutor, work: Callable[[Queue], T]) -> T:
        if self._pending >= _MAX_PENDING:
            raise TryLater("the server is overloaded", "try again in a few seconds")
        self._pending += 1
        call = pool.submit(self._call, work)
        future = asyncio.wrap_future(call)
        future.add_done_callback(self._finished)
        try:
            # Shielded: a thread cannot be stopped, and its work counts as pending until it is done.
            return await asyncio.wait_for(asyncio.shield(future), _TIMEOUT_SECONDS)
        except TimeoutError:
            took = f"the request took longer than {_TIMEOUT_SECONDS:g} seconds"
            if call.cancel() or pool is not self._writer:
                raise TryLater(
                    f"{took} and changed nothing", "try again in a few seconds"
                ) from None
            raise TimedOut(
                f"{took} and is still being processed",
                "see whether it succeeded before you repeat it",
            ) from None

    def _call(self, work: Callable[[Queue], T]) -> T:
        try:
            return work(thread_queue(self.settings, creates=self._creates))
        except sqlite3.Error as error:
            raise translate(error, self.settings.state_dir) from error

    def _finished(self, future: asyncio.Future[T]) -> None:
        self._pending -= 1
        if not future.cancelled():
            future.exception()  # retrieved, or asyncio logs it when the waiter has timed out

    def close(self) -> None:
        self._readers.shutdown(wait=False, cancel_futures=True)
        self._writer.shutdown(wait=False, cancel_futures=True)
