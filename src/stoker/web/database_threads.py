"""Threads that work for the server: SQLite connections belong to one thread each.

Few read at a time, and one alone changes: what a job inherits (the mask of this process) is looked
up in a way that two threads must not do at once, and the store takes one writer anyway.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from stoker.client.finish_watch import open_queue
from stoker.client.queue import Queue
from stoker.errors import TryLater
from stoker.settings import Settings
from stoker.store.database import translate

T = TypeVar("T")
_READERS = 4
_MOST_WAITING = 100
_PATIENCE_SECONDS = 25.0


class DatabaseThreads:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._readers = ThreadPoolExecutor(_READERS, "reader")
        self._writer = ThreadPoolExecutor(1, "writer")
        self._waiting = 0

    async def read(self, work: Callable[[Queue], T]) -> T:
        return await self._run(self._readers, work)

    async def write(self, work: Callable[[Queue], T]) -> T:
        return await self._run(self._writer, work)

    async def _run(self, pool: ThreadPoolExecutor, work: Callable[[Queue], T]) -> T:
        if self._waiting >= _MOST_WAITING:
            raise TryLater("the server has more to do than it can")
        self._waiting += 1
        future = asyncio.get_running_loop().run_in_executor(pool, self._do, work)
        future.add_done_callback(self._done)
        try:
            # Shielded: a thread cannot be stopped, and it counts until it is done.
            return await asyncio.wait_for(asyncio.shield(future), _PATIENCE_SECONDS)
        except TimeoutError:
            raise TryLater("this took too long") from None

    def _do(self, work: Callable[[Queue], T]) -> T:
        try:
            return work(open_queue(self.settings))
        except sqlite3.Error as error:
            raise translate(error, self.settings.state_dir) from error

    def _done(self, future: asyncio.Future[T]) -> None:
        self._waiting -= 1
        if not future.cancelled():
            future.exception()  # heard of, also where nobody waits for it any more

    def close(self) -> None:
        self._readers.shutdown(wait=False, cancel_futures=True)
        self._writer.shutdown(wait=False, cancel_futures=True)
