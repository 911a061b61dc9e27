"""Wait for several jobs, like `wait` and `as_completed` of concurrent.futures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from stoker.errors import UsageError
from stoker.python.job import Job, deadline
from stoker.python.wait_line import WaitLine
from stoker.states import DONE

if TYPE_CHECKING:
    from stoker.python.executor import JobFuture

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
