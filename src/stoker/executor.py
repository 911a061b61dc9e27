"""Jobs behind the interface of concurrent.futures.

    with stoker.Executor(gpus=1) as executor:
        for score in executor.map(train, [0.1, 0.01, 0.001]):
            print(score)

One thread watches all of an executor's jobs. Unlike a pool, the queue outlives this process: what
was submitted runs to its end even if nobody waits for it.
"""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from stoker.core.states import CANCELLED, WAITING
from stoker.ends import watcher
from stoker.errors import UsageError
from stoker.handles import Job
from stoker.job_options import read_options
from stoker.python_api import Queue

if TYPE_CHECKING:
    from typing import Unpack

    from stoker.job_options import Options

P = ParamSpec("P")
T = TypeVar("T")


class JobFuture(concurrent.futures.Future[T], Generic[T]):
    """A Future with a job behind it. Unlike others it can be cancelled while it runs."""

    def __init__(self, job: Job[T]) -> None:
        super().__init__()
        self.job = job
        self._claim = threading.Lock()  # whoever gets it says how this ends

    def running(self) -> bool:
        return not self.done() and self.job.running()

    def cancel(self) -> bool:
        """Cancel the job, waiting or running; False when it has ended."""
        if self.done() or not self.job.cancel():
            return self.cancelled()
        return self._end_cancelled()

    def _end_cancelled(self) -> bool:
        if self._claim.acquire(blocking=False):
            super().cancel()
            self.set_running_or_notify_cancel()
        return self.cancelled()

    def _settle(self, state: str | None) -> None:
        """The job has ended; called once, by the watcher."""
        if state == CANCELLED:  # by somebody else
            self._end_cancelled()
            return
        if not self._claim.acquire(blocking=False):
            return
        value, error = self.job._outcome()
        self.set_running_or_notify_cancel()
        if error is not None:
            self.set_exception(error)
        else:
            self.set_result(value)  # type: ignore[arg-type]


class Executor(concurrent.futures.Executor):
    """Runs calls as jobs. Its options hold for all of them; those of a job function go before.

    >>> with Executor(gpus=2, time_limit="2h") as executor:           # doctest: +SKIP
    ...     executor.submit(train, 0.1).result()
    """

    def __init__(self, queue: Queue | None = None, **options: Unpack[Options]) -> None:
        read_options(options)
        if options.get("dedupe") is not None:
            raise UsageError("`dedupe` names one job, and an executor makes many")
        self._queue = queue if queue is not None else Queue()
        self._options = options
        self._lock = threading.Lock()
        self._futures: set[JobFuture[Any]] = set()
        self._is_shut = False

    def submit(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobFuture[T]:
        """Queue a call; its Future."""
        return self._start(function, [(args, kwargs)])[0]

    def map(
        self,
        function: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """Results in the order of the items; all calls enter the queue at once.

        `chunksize` and `buffersize` are there for compatibility and change nothing: each item is a
        job, and the queue keeps them.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        calls: list[tuple[tuple[Any, ...], dict[str, Any]]]
        calls = [(args, {}) for args in zip(*iterables, strict=False)]
        return _results(self._queue, self._start(function, calls), deadline)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls. With `wait`, return when all have ended."""
        with self._lock:
            self._is_shut = True
            pending = list(self._futures)
        if cancel_futures:
            _cancel_waiting(self._queue, pending)
        if wait:
            concurrent.futures.wait(pending)

    def _start(
        self,
        function: Callable[..., Any],
        calls: list[tuple[tuple[Any, ...], dict[str, Any]]],
    ) -> list[JobFuture[Any]]:
        with self._lock:
            if self._is_shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
        jobs = self._queue._call(function, calls, self._options)
        futures: list[JobFuture[Any]] = [JobFuture(job) for job in jobs]
        with self._lock:
            self._futures.update(futures)
        for future in futures:
            future.add_done_callback(self._forget)
            watcher(self._queue._settings).add(future.job.id, future._settle)
        return futures

    def _forget(self, future: concurrent.futures.Future[Any]) -> None:
        with self._lock:
            self._futures.discard(future)


def _results(queue: Queue, futures: list[JobFuture[T]], deadline: float | None) -> Iterator[T]:
    """One result after the other; when nobody wants the rest, what still waits is cancelled."""
    place = 0
    try:
        while place < len(futures):
            rest = None if deadline is None else deadline - time.monotonic()
            result = futures[place].result(rest)
            futures[place] = None  # type: ignore[call-overload]  # the value may be large
            place += 1
            yield result
    finally:
        _cancel_waiting(queue, futures[place:])


def _cancel_waiting(queue: Queue, futures: Iterable[JobFuture[Any]]) -> None:
    """All at once: a thousand transactions would take a while."""
    waiting = [future for future in futures if not future.done() and future.job.state in WAITING]
    if waiting:
        queue.cancel(*(future.job for future in waiting))
        for future in waiting:
            future._end_cancelled()


__all__ = ["Executor", "JobFuture"]
