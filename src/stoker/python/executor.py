"""An Executor for concurrent.futures that runs calls as jobs.

    with stoker.Executor(gpus=1) as executor:
        for score in executor.map(train, [0.1, 0.01, 0.001]):
            print(score)

One thread watches all jobs of a process. Unlike a pool, the queue outlives this process: submitted
jobs run to their end even if no process waits for them.
"""

from __future__ import annotations

import concurrent.futures
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from stoker.client.live.finish_watch import is_watcher_thread, watcher
from stoker.client.submit.parsed_options import read_options
from stoker.engine.store.request_groups import limited_group
from stoker.errors import UsageError
from stoker.python.api import Queue
from stoker.python.job import Job
from stoker.python.wait import WaitLine, wait_for_futures
from stoker.states import CANCELLED, WAITING

if TYPE_CHECKING:
    from typing import Unpack

    from stoker.python.options import Options

P = ParamSpec("P")
T = TypeVar("T")

# The logger that concurrent.futures itself uses for exceptions in callbacks.
_LOGGER = logging.getLogger("concurrent.futures")
# Arguments of the standard executors that do not apply, because every call has its own process.
_OF_POOLS = (
    "initializer",
    "initargs",
    "mp_context",
    "max_tasks_per_child",
    "thread_name_prefix",
)


class JobFuture(concurrent.futures.Future[T], Generic[T]):
    """The Future of a job. Unlike other futures it can be cancelled while it runs."""

    def __init__(self, job: Job[T], progress: bool | None = None) -> None:
        super().__init__()
        self.job = job
        self._progress = progress
        self._claim = threading.Lock()  # the thread that acquires it sets the result
        _pending.add(self)

    def running(self) -> bool:
        return not self.done() and self.job.running()

    def cancel(self) -> bool:
        """Cancel the waiting or running job; return False if it has finished."""
        if self.done() or not self.job.cancel():
            return self.cancelled()
        return self._end_cancelled()

    def result(self, timeout: float | None = None) -> T:
        return super().result(self._wait_shown(timeout))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return super().exception(self._wait_shown(timeout))

    def _wait_shown(self, timeout: float | None) -> float | None:
        """Wait with a progress line; returns the rest of the timeout."""
        self._set_outcome_on_watcher_thread(timeout)
        if self.done():
            return timeout
        began = time.monotonic()
        ids = self.job._together or [self.job.id]
        with WaitLine(self.job._settings, ids, self._progress) as line:
            wait_for_futures(line, [self], timeout)
        return None if timeout is None else max(0.0, timeout - (time.monotonic() - began))

    def add_done_callback(self, fn: Callable[[concurrent.futures.Future[T]], object]) -> None:
        """Like Future.add_done_callback; exceptions on the watcher thread are logged."""
        super().add_done_callback(lambda future: _call_back(fn, future))

    def _end_cancelled(self) -> bool:
        if self._claim.acquire(blocking=False):
            try:
                super().cancel()
            finally:  # a callback may raise SystemExit; waiting threads must still be notified
                self.set_running_or_notify_cancel()
                _pending.discard(self)
        return self.cancelled()

    def _set_outcome(self, state: str | None) -> None:
        """Set the outcome of a finished job. May be called by any thread; only the first counts."""
        if state == CANCELLED:
            self._end_cancelled()
            return
        if not self._claim.acquire(blocking=False):
            return
        value, error = self.job._outcome()
        self.set_running_or_notify_cancel()
        _pending.discard(self)
        if error is not None:
            self.set_exception(error)
        else:
            self.set_result(value)  # type: ignore[arg-type]

    def _set_outcome_on_watcher_thread(self, timeout: float | None) -> None:
        """Avoid a deadlock if a callback on the watcher thread waits for another future."""
        if is_watcher_thread() and not self.done() and self.job.wait(timeout):
            self._set_outcome(self.job.state)

    def _end_in_forked_process(self) -> None:
        """Fail in a forked child, because the thread that sets the result is in the parent."""
        self._condition = threading.Condition()
        self._waiters: list[Any] = []
        self._done_callbacks: list[Any] = []
        self._exception = RuntimeError(
            f"the future of job {self.job.id} belongs to the process that submitted it\n"
            "hint: in a forked process, wait for the job itself: future.job.result()"
        )
        self._state = "FINISHED"


def _call_back(
    fn: Callable[[concurrent.futures.Future[T]], object], future: concurrent.futures.Future[T]
) -> None:
    try:
        fn(future)
    except Exception:
        raise  # concurrent.futures logs it
    except BaseException:
        if not is_watcher_thread():
            raise
        _LOGGER.exception("exception calling callback for %r", future)


_pending: weakref.WeakSet[JobFuture[Any]] = weakref.WeakSet()


def _reset_after_fork() -> None:
    for future in list(_pending):
        if not future.done():
            future._end_in_forked_process()
    _pending.clear()


os.register_at_fork(after_in_child=_reset_after_fork)


class Executor(concurrent.futures.Executor):
    """Runs calls as jobs. Its options apply to all calls; options of a job function override them.

    `max_workers` limits how many of its jobs run at a time; without it, the GPUs are the limit. The
    daemon enforces the limit, also after this process has exited. `progress`: whether results and
    `shutdown` show progress while they wait; by default on a terminal and in a notebook.

    >>> with Executor(gpus=2, time_limit="2h") as executor:           # doctest: +SKIP
    ...     executor.submit(train, 0.1).result()
    """

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        queue: Queue | None = None,
        progress: bool | None = None,
        **options: Unpack[Options],
    ) -> None:
        for name in _OF_POOLS:
            if name in options:
                raise UsageError(
                    f"`{name}` is not supported by stoker.Executor",
                    "each call runs in its own process; do the setup inside the function",
                )
        read_options(options)
        if options.get("dedupe") is not None:
            raise UsageError("`dedupe` is a key for a single job, but an executor submits several")
        self._share = "" if max_workers is None else _share(max_workers)
        self._queue = queue if queue is not None else Queue()
        self._options = options
        self._progress = progress
        self._lock = threading.RLock()
        self._futures: set[JobFuture[Any]] = set()
        self._is_shut = False

    def submit(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobFuture[T]:
        """Submit a call and return its Future."""
        return self._start(function, [(args, kwargs)])[0]

    def map(
        self,
        function: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """Return the results in the order of the items; all calls are submitted at once.

        `chunksize` and `buffersize` exist for compatibility. They are checked but have no effect,
        because each item is a job in the queue.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if not isinstance(buffersize, int | None):
            raise TypeError("buffersize must be an integer or None")
        if buffersize is not None and buffersize < 1:
            raise ValueError("buffersize must be None or > 0")
        deadline = None if timeout is None else time.monotonic() + timeout
        calls: list[tuple[tuple[Any, ...], dict[str, Any]]]
        calls = [(args, {}) for args in zip(*iterables, strict=False)]
        return _results(self._queue, self._start(function, calls), deadline)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls. With `wait`, return after all calls have finished."""
        with self._lock:
            self._is_shut = True
            pending = list(self._futures)
        if cancel_futures:
            _cancel_waiting(self._queue, pending)
        if wait:
            for future in pending:
                future._set_outcome_on_watcher_thread(None)
            ids = [future.job.id for future in pending]
            with WaitLine(self._queue._settings, ids, self._progress) as line:
                wait_for_futures(line, pending, None)
            concurrent.futures.wait(pending)

    def _start(
        self,
        function: Callable[..., Any],
        calls: list[tuple[tuple[Any, ...], dict[str, Any]]],
    ) -> list[JobFuture[Any]]:
        with self._lock:
            if self._is_shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
        watching = watcher(self._queue._settings)
        try:
            watching.check()
        except RuntimeError as error:
            raise RuntimeError(f"cannot schedule new futures: {error}") from None
        jobs = self._queue._call(function, calls, self._options, self._share)
        futures: list[JobFuture[Any]] = [JobFuture(job, self._progress) for job in jobs]
        with self._lock:
            self._futures.update(futures)
        for future in futures:
            future.add_done_callback(self._forget)
            watching.add(future.job.id, future._set_outcome)
        return futures

    def _forget(self, future: concurrent.futures.Future[Any]) -> None:
        with self._lock:
            self._futures.discard(future)


def _share(max_workers: object) -> str:
    """The fair-share group by which the daemon counts the jobs of one executor."""
    if isinstance(max_workers, Queue):
        raise UsageError(
            "the queue of an executor is a keyword argument", "Executor(queue=Queue(folder))"
        )
    if not isinstance(max_workers, int) or isinstance(max_workers, bool):
        raise UsageError(
            f"max_workers must be an integer, not {max_workers!r}", "Executor(4, gpus=1)"
        )
    if max_workers <= 0:
        raise ValueError("max_workers must be greater than 0")  # same text as concurrent.futures
    return limited_group(os.urandom(6).hex(), max_workers)


def _results(queue: Queue, futures: list[JobFuture[T]], deadline: float | None) -> Iterator[T]:
    """Yield the results; if the iterator is closed early, waiting jobs are cancelled."""
    futures.reverse()
    try:
        while futures:
            # Keep no reference to a yielded value, which may be large.
            yield _next_result(futures, deadline)
    finally:
        _cancel_waiting(queue, futures)


def _next_result(futures: list[JobFuture[T]], deadline: float | None) -> T:
    rest = None if deadline is None else deadline - time.monotonic()
    future = futures[-1]
    try:
        return future.result(rest)
    finally:
        if future.done():
            futures.pop()
        del future


def _cancel_waiting(queue: Queue, futures: Iterable[JobFuture[Any]]) -> None:
    """Cancel waiting jobs in a single transaction."""
    waiting = [future for future in futures if not future.done() and future.job.state in WAITING]
    if waiting:
        queue.cancel(*(future.job for future in waiting))
        for future in waiting:
            future._end_cancelled()


__all__ = ["Executor", "JobFuture"]
