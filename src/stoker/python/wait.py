"""Wait for several jobs, like `wait` and `as_completed` of concurrent.futures; show progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from stoker.errors import UsageError
from stoker.python.job import Job, deadline
from stoker.states import DONE

if TYPE_CHECKING:
    import concurrent.futures

    from stoker.client.live.wait_display import WaitDisplay
    from stoker.client.live.wait_progress import WaitedIds
    from stoker.engine.store.database import Database
    from stoker.python.executor import JobFuture
    from stoker.settings import Settings

Handle = TypeVar("Handle", bound="Job[Any] | JobFuture[Any]")

# The constants of concurrent.futures.
FIRST_COMPLETED = "FIRST_COMPLETED"
FIRST_EXCEPTION = "FIRST_EXCEPTION"
ALL_COMPLETED = "ALL_COMPLETED"


class DoneAndNotDone(NamedTuple, Generic[Handle]):
    done: set[Handle]
    not_done: set[Handle]


def as_completed(
    jobs: Iterable[Handle], timeout: float | None = None, *, progress: bool | None = None
) -> Iterator[Handle]:
    """Yield jobs (or futures of an Executor) as they finish, each once.

    >>> for job in as_completed(jobs):                    # doctest: +SKIP
    ...     print(job.id, job.result())

    Raises TimeoutError if that takes longer than `timeout` seconds in total. While it waits, a
    terminal and a notebook show progress; `progress=False`: never, True: always.
    """
    from stoker.client.live.finish_watch import FinishWatch

    handles = _Handles(jobs)
    ids = list(handles.left)
    yield from handles.take_done()
    if not handles.left:
        return
    with WaitLine(handles.settings, ids, progress) as line:
        watch = FinishWatch(handles.settings, handles.left, line.refresh)
        try:
            for id, state in watch.until(deadline(timeout)):
                line.clear()
                yield from handles.take(id, state)
        except TimeoutError:
            unfinished = sum(map(len, handles.left.values()))
            raise TimeoutError(f"{unfinished} of {handles.count} jobs have not finished") from None


def wait(
    jobs: Iterable[Handle],
    timeout: float | None = None,
    return_when: str = ALL_COMPLETED,
    *,
    progress: bool | None = None,
) -> DoneAndNotDone[Handle]:
    """Wait for jobs (or futures of an Executor) like concurrent.futures.wait: (done, not_done).

    FIRST_COMPLETED returns when the first job finishes, FIRST_EXCEPTION when the first one fails.
    Meanwhile a terminal and a notebook show progress; `progress=False`: never, True: always.
    """
    from stoker.client.live.finish_watch import FinishWatch

    if return_when not in (FIRST_COMPLETED, FIRST_EXCEPTION, ALL_COMPLETED):
        raise UsageError(
            f"`{return_when}` is not a valid value of return_when",
            f"use {FIRST_COMPLETED}, {FIRST_EXCEPTION} or {ALL_COMPLETED}",
        )
    handles = _Handles(jobs)
    ids = list(handles.left)
    done = set(handles.take_done())
    if handles.left and not (done and return_when == FIRST_COMPLETED):
        with WaitLine(handles.settings, ids, progress) as line:
            watch = FinishWatch(handles.settings, handles.left, line.refresh)
            try:
                for group in watch.groups(deadline(timeout)):
                    for id, state in group:
                        done.update(handles.take(id, state))
                    has_failure = any(state != DONE for _, state in group)
                    if return_when == FIRST_COMPLETED or (
                        return_when == FIRST_EXCEPTION and has_failure
                    ):
                        break
            except TimeoutError:
                pass
    return DoneAndNotDone(done, {handle for left in handles.left.values() for handle in left})


class _Handles(Generic[Handle]):
    """Jobs of one queue and their futures, by job number."""

    def __init__(self, given: Iterable[Handle]) -> None:
        self.left: dict[int, list[Handle]] = {}
        place: Job[Any] | None = None
        for handle in dict.fromkeys(given):
            job = handle if isinstance(handle, Job) else getattr(handle, "job", None)
            if not isinstance(job, Job):
                raise UsageError(
                    f"{handle!r} is neither a job nor a future of a stoker.Executor",
                    "concurrent.futures.wait accepts all kinds of futures, including Stoker's",
                )
            place = place or job
            if job.state_dir != place.state_dir:
                raise UsageError(
                    "cannot wait for jobs of two queues at once",
                    f"wait separately for those in `{place.state_dir}` and `{job.state_dir}`",
                )
            self.left.setdefault(job.id, []).append(handle)
        if place is not None:
            self.settings = place._settings
        self.count = sum(map(len, self.left.values()))

    def take_done(self) -> list[Handle]:
        """Remove and return finished futures; a cancelled one is done while its job still stops."""
        done: list[Handle] = []
        for id, handles in list(self.left.items()):
            ended = [one for one in handles if not isinstance(one, Job) and one.done()]
            done += ended
            self.left[id] = [one for one in handles if one not in ended]
            if not self.left[id]:
                del self.left[id]
        return done

    def take(self, id: int, state: str | None) -> list[Handle]:
        """Remove and return the handles of a finished job, after its futures are done too."""
        from concurrent.futures import wait

        handles = self.left.pop(id)
        for one in handles:
            if not isinstance(one, Job):
                one._set_outcome(state)
                wait([one])  # the watcher thread may be about to set the result
        return handles


_DELAY_SECONDS = 0.5  # a shorter wait shows nothing unless progress is asked for
_REFRESH_SECONDS = 1.0


class WaitLine:
    """A progress line that appears when the calling thread has to wait, and ends with the block.

    `wanted` is the argument `progress` of the caller: None shows the line on a terminal and in a
    notebook, in the main thread only, because lines of several threads would overwrite each other.

    with WaitLine(settings, ids, progress) as line:
        ...  # call line.refresh() before each wait
    """

    def __init__(
        self, settings: Settings, ids: WaitedIds, wanted: bool | None, planned: int | None = None
    ) -> None:
        self._settings = settings
        self._ids = ids
        self._wanted = wanted
        self._planned = planned
        self._display: WaitDisplay | None = None
        self.is_shown = self._is_wanted()

    def _is_wanted(self) -> bool:
        if self._wanted is not None:
            return self._wanted
        import threading

        if threading.current_thread() is not threading.main_thread():
            return False
        if "IPython" in sys.modules:
            return True  # `progress_output` decides
        try:
            return sys.stderr.isatty()
        except (AttributeError, ValueError):  # None, or closed
            return False

    def __enter__(self) -> WaitLine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._display is not None:
            self._display.close()
            self._display = None
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            print("interrupted: the jobs continue; `cancel()` stops them", file=sys.stderr)

    def refresh(self) -> None:
        """Show the current numbers."""
        if not self.is_shown:
            return
        if self._display is None:
            from stoker.client.live.wait_display import WaitDisplay

            self._display = WaitDisplay(
                self._settings,
                self._database,
                self._ids,
                wanted=self._wanted,
                planned=self._planned,
                delay=0.0 if self._wanted else _DELAY_SECONDS,
            )
            self.is_shown = self._display.is_shown
        self._display.refresh()

    def clear(self) -> None:
        """Remove the line, so that other output can follow."""
        if self._display is not None:
            self._display.clear()

    def _database(self) -> Database:
        from stoker.client.queue_connections import thread_queue

        return thread_queue(self._settings, creates=False).db


def wait_for_futures(
    line: WaitLine, futures: Iterable[concurrent.futures.Future[Any]], timeout: float | None
) -> None:
    """Wait until all futures are done, or for `timeout` seconds; refresh the line meanwhile."""
    from concurrent.futures import wait

    left = set(futures)
    deadline = None if timeout is None else time.monotonic() + timeout
    while left and line.is_shown:
        line.refresh()
        rest = None if deadline is None else deadline - time.monotonic()
        if rest is not None and rest <= 0:
            return
        pause = _REFRESH_SECONDS if rest is None else min(rest, _REFRESH_SECONDS)
        left = wait(left, pause).not_done
