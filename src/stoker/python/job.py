"""Handles to jobs: ask, wait, cancel, get the result.

    job = stoker.submit("python train.py")
    job.wait()
    print(job.state, job.log())

A handle is a queue and a number. It can be pickled, kept for days and used in any process of the
same user and host; the job does not know of it. Nothing is cached: every question is answered by
the queue as it is then.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, TypeVar, cast

from stoker.core.states import ACTIVE, CANCELLED, DONE, FINAL, LOST
from stoker.errors import NotFound, UsageError

if TYPE_CHECKING:
    from stoker.client.queue import Queue
    from stoker.functions.payload import Outcome
    from stoker.python.executor import JobFuture
    from stoker.settings import Settings
    from stoker.store.job_queries import JobRow

T_co = TypeVar("T_co", covariant=True)
Handle = TypeVar("Handle", bound="Job[Any] | JobFuture[Any]")

# The words of concurrent.futures.
FIRST_COMPLETED = "FIRST_COMPLETED"
FIRST_EXCEPTION = "FIRST_EXCEPTION"
ALL_COMPLETED = "ALL_COMPLETED"

_LAST_LINES = 10


class JobFailed(Exception):
    """A job ended badly, and there is no exception of its own to raise.

    `job`, `state`, `cause`, `exit_code`, `signal` and `log` (its last lines) tell more.
    """

    def __init__(
        self,
        job: int,
        state: str,
        words: str,
        cause: str | None,
        exit_code: int | None,
        signal: int | None,
        log: tuple[str, ...],
    ) -> None:
        super().__init__(job, state, words, cause, exit_code, signal, log)
        self.job = job
        self.state = state
        self.words = words
        self.cause = cause
        self.exit_code = exit_code
        self.signal = signal
        self.log = log

    def __str__(self) -> str:
        text = f"job {self.job} {'is lost' if self.state == LOST else self.state}"
        text += f": {self.words}" if self.words else ""
        if self.log:
            text += "\nthe end of its log:\n" + "\n".join(f"    {line}" for line in self.log)
        return text


class JobLost(JobFailed):
    """A job began, nothing of it is alive, and nobody saw how it ended."""


class RemoteTraceback(Exception):
    """The cause of an exception that came from a job: the traceback as it was there."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


class Job(Generic[T_co]):
    """One job in a queue. `Job[float]` is a call that returns a float; commands are `Job[int]`.

    >>> job = submit("python train.py", gpus=1)     # doctest: +SKIP
    >>> job.result(timeout=3600)                    # doctest: +SKIP
    0
    """

    def __init__(self, settings: Settings, id: int) -> None:
        self._settings = settings
        self.id = id

    @property
    def state_dir(self) -> str:
        """The queue that it is in."""
        return self._settings.state_dir

    # -- ask ---------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """held, queued, starting, running, stopping, done, failed, cancelled or lost."""
        return self._row().state

    @property
    def name(self) -> str | None:
        return self._row().name

    @property
    def exit_code(self) -> int | None:
        """Of the newest attempt; None while there is none."""
        from stoker.client.views import exit_code

        return exit_code(self._row())

    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self.state in FINAL

    def running(self) -> bool:
        return self.state in ACTIVE

    def cancelled(self) -> bool:
        return self.state == CANCELLED

    def info(self) -> dict[str, Any]:
        """Everything that `stoker show --json` says."""
        from stoker.client import views

        queue = self._queue()
        return views.job_json(queue.db, queue.settings, self._row())

    def why(self) -> str:
        """What it waits for, as `stoker why` says it; "" when it is about to start."""
        from stoker.client import waiting

        queue = self._queue()
        return "; ".join(waiting.why(queue.db, queue.settings, self._row()))

    def log(self, lines: int | None = None) -> str:
        """Its output as `stoker log` shows it: progress bars collapsed, escapes filtered."""
        from stoker.client.log_text import last_lines, log_text
        from stoker.client.views import log_paths

        path = log_paths(self._settings, self._row())[0]
        if path is None:
            return ""
        if lines is None:
            return log_text(path)
        return "".join(f"{line}\n" for line in last_lines(path, lines))

    # -- wait --------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended; False when that took longer than `timeout` seconds."""
        try:
            self._final_row(timeout)
        except TimeoutError:
            return False
        return True

    def result(self, timeout: float | None = None) -> T_co:
        """Wait for the value of a call, or for the exit code 0 of a command.

        Raises what the function raised (with the remote traceback as its cause), JobFailed,
        JobLost, concurrent.futures.CancelledError, or TimeoutError.
        """
        return self._settle(self._final_row(timeout))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait; what `result` would raise, or None. Cancelled jobs raise here too."""
        row = self._final_row(timeout)
        if row.state == CANCELLED:
            _raise_cancelled(row)
        try:
            self._settle(row)
        except Exception as error:
            return error
        return None

    def __await__(self) -> Generator[Any, None, T_co]:
        """`await job` is `job.result()` for asyncio. Cancelling the task leaves the job alone."""
        return self._awaited().__await__()

    async def _awaited(self) -> T_co:
        import asyncio

        from stoker.client.finish_watch import watcher

        loop = asyncio.get_running_loop()
        ended: asyncio.Future[T_co] = loop.create_future()

        def settle(value: T_co | None, error: BaseException | None) -> None:
            if ended.done():
                return
            if isinstance(error, StopIteration):  # which asyncio cannot carry
                error, cause = RuntimeError(f"job {self.id} raised StopIteration"), error
                error.__cause__ = cause
            if error is not None:
                ended.set_exception(error)
            else:
                ended.set_result(cast("T_co", value))

        def tell(_: str | None) -> None:  # in the watcher's thread: reading may take long
            value, error = self._outcome()
            loop.call_soon_threadsafe(settle, value, error)

        watching = watcher(self._settings)
        watching.add(self.id, tell)
        try:
            return await ended
        finally:
            watching.forget(self.id, tell)

    def _outcome(self) -> tuple[T_co | None, BaseException | None]:
        """(value, None) or (None, exception) of a job that has ended.

        For the watcher's thread: no exception of the user's code leaves it. A SystemExit or the
        like that unpickling raises comes back as a RuntimeError, which asyncio and
        concurrent.futures can carry.
        """
        try:
            return self.result(0), None
        except Exception as error:
            return None, error
        except BaseException as error:
            text = f"the result of job {self.id} cannot be unpickled: {type(error).__name__}"
            wrapped = RuntimeError(f"{text}: {error}")
            wrapped.__cause__ = error
            return None, wrapped

    # -- change ------------------------------------------------------------------------------

    def cancel(self, grace: float | None = None) -> bool:
        """Take it out of the queue, or stop it; False when it had ended in another way before."""
        return any(self._queue().cancel([self.id], grace)) or self.cancelled()

    def hold(self) -> bool:
        """Keep it from starting until `release`; False when it does not wait."""
        return bool(self._queue().hold([self.id]))

    def release(self) -> bool:
        """Let it start; False when it was not held."""
        return bool(self._queue().release([self.id]))

    def rerun(self) -> Job[T_co]:
        """A new job that asks for the same."""
        return Job(self._settings, self._queue().rerun([self.id])[0])

    # -- as an object ------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Job):
            return NotImplemented
        return (self.state_dir, self.id) == (other.state_dir, other.id)

    def __hash__(self) -> int:
        return hash((self.state_dir, self.id))

    def __reduce__(self) -> tuple[Any, ...]:
        return _attached, (self.state_dir, self.id)

    def __repr__(self) -> str:
        from stoker.core.formats.terminal import printable

        try:
            row = self._row()
        except Exception:  # removed, or the queue cannot be read: a repr never fails
            return f"<Job {self.id}>"
        name = f" {row.name}" if row.name else ""
        return printable(f"<Job {self.id}{name}: {row.state}>")

    def _repr_html_(self) -> str:
        from html import escape

        from stoker.client import views
        from stoker.core.formats.shell_words import display
        from stoker.core.formats.terminal import printable

        row = self._row()
        words = views.result_words(row)
        cells = (
            ("job", str(row.id)),
            ("name", row.name or ""),
            ("state", row.state + (f": {words}" if words else "")),
            ("gpus", ", ".join(map(str, row.devices)) or str(row.gpus)),
            ("command", display(row.argv, row.shell)),
        )
        shown = "".join(
            f"<tr><th>{key}</th><td>{escape(printable(text))}</td></tr>" for key, text in cells
        )
        return f"<table>{shown}</table>"

    # -- inside ------------------------------------------------------------------------------

    def _queue(self) -> Queue:
        from stoker.client.finish_watch import open_queue

        return open_queue(self._settings, creates=False)

    def _row(self) -> JobRow:
        from stoker.store import job_queries

        return job_queries.job(self._queue().db, self.id)

    def _final_row(self, timeout: float | None) -> JobRow:
        from stoker.client.finish_watch import FinishWatch

        try:
            for _ in FinishWatch(self._settings, [self.id]).until(_deadline(timeout)):
                pass
        except TimeoutError:
            raise TimeoutError(f"job {self.id} has not ended after {timeout:g} s") from None
        return self._row()

    def _settle(self, row: JobRow) -> T_co:
        from stoker.functions.call import folder_of

        if row.state == CANCELLED:
            _raise_cancelled(row)
        folder = None if row.shell else folder_of(row.argv)
        outcome = None if folder is None else _outcome_of(folder, row)
        if outcome is not None and outcome.traceback is not None:
            raise self._remote_error(outcome, row)
        if row.state != DONE or (folder is not None and outcome is None):
            raise self._failure(row)  # one that died after it left a value failed all the same
        if outcome is None or outcome.value is None:
            return cast("T_co", 0)
        import pickle

        return cast("T_co", pickle.loads(outcome.value))

    def _remote_error(self, outcome: Outcome, row: JobRow) -> Exception:
        import pickle

        error: Exception | None = None
        if outcome.error is not None:
            try:
                error = pickle.loads(outcome.error)
            except KeyboardInterrupt:
                raise
            except BaseException:  # its module is not to be had here; its words are
                error = None
        if not isinstance(error, Exception):
            error = self._failure(row, outcome.summary)
        error.__cause__ = RemoteTraceback(outcome.traceback or outcome.summary)
        return error

    def _failure(self, row: JobRow, words: str = "") -> JobFailed:
        from stoker.client import views
        from stoker.client.log_text import last_lines
        from stoker.core.formats.terminal import printable

        path = views.log_paths(self._settings, row)[0]
        kind = JobLost if row.state == LOST else JobFailed
        if not words:
            words = views.result_words(row) or "it left no result"
        return kind(
            row.id,
            row.state,
            printable(words),
            row.cause or row.attempt_cause,
            views.exit_code(row),
            views.signal_number(row),
            tuple(last_lines(path, _LAST_LINES)) if path is not None else (),
        )


def _outcome_of(folder: str, row: JobRow) -> Outcome | None:
    """What the newest attempt left, if it came so far; one that was cut short left nothing."""
    from stoker.functions import payload, payload_files

    if row.state == LOST or (row.cause or row.attempt_cause) == "time_limit":
        return None
    try:
        outcome = payload.read_outcome(payload_files.read_result(folder, row.id))
    except NotFound:
        return None
    return outcome if outcome.attempt == row.attempts else None


def _attached(state_dir: str, id: int) -> Job[Any]:
    from stoker.settings import load_settings

    return Job(load_settings()._replace(state_dir=state_dir), id)


def _raise_cancelled(row: JobRow) -> NoReturn:
    from concurrent.futures import CancelledError

    from stoker.client.views import result_words

    raise CancelledError(f"job {row.id} was cancelled: {result_words(row)}")


def _deadline(timeout: float | None) -> float | None:
    if timeout is not None and timeout != timeout:
        raise UsageError("the timeout is nan", "give seconds, or None to wait without a limit")
    return None if timeout is None else time.monotonic() + timeout


# -- many ----------------------------------------------------------------------------------------


class DoneAndNotDone(NamedTuple, Generic[Handle]):
    done: set[Handle]
    not_done: set[Handle]


def as_completed(jobs: Iterable[Handle], timeout: float | None = None) -> Iterator[Handle]:
    """The jobs (or futures of an Executor) in the order in which they end, each once.

    >>> for job in as_completed(jobs):                    # doctest: +SKIP
    ...     print(job.id, job.result())

    TimeoutError when that takes longer than `timeout` seconds in all.
    """
    from stoker.client.finish_watch import FinishWatch

    handles = _Handles(jobs)
    yield from handles.take_done()
    if not handles.left:
        return
    try:
        for id, state in FinishWatch(handles.settings, handles.left).until(_deadline(timeout)):
            yield from handles.take(id, state)
    except TimeoutError:
        unfinished = sum(map(len, handles.left.values()))
        raise TimeoutError(f"{unfinished} of {handles.count} jobs have not ended") from None


def wait(
    jobs: Iterable[Handle], timeout: float | None = None, return_when: str = ALL_COMPLETED
) -> DoneAndNotDone[Handle]:
    """Wait for jobs (or futures of an Executor), as concurrent.futures.wait: (done, not_done).

    FIRST_COMPLETED returns with the first end, FIRST_EXCEPTION with the first failure.
    """
    from stoker.client.finish_watch import FinishWatch

    if return_when not in (FIRST_COMPLETED, FIRST_EXCEPTION, ALL_COMPLETED):
        raise UsageError(
            f"`{return_when}` says nothing about when to return",
            f"{FIRST_COMPLETED}, {FIRST_EXCEPTION} or {ALL_COMPLETED}",
        )
    handles = _Handles(jobs)
    done = set(handles.take_done())
    if handles.left and not (done and return_when == FIRST_COMPLETED):
        try:
            for group in FinishWatch(handles.settings, handles.left).groups(_deadline(timeout)):
                for id, state in group:
                    done.update(handles.take(id, state))
                is_bad = any(state != DONE for _, state in group)
                if return_when == FIRST_COMPLETED or (return_when == FIRST_EXCEPTION and is_bad):
                    break
        except TimeoutError:
            pass
    return DoneAndNotDone(done, {handle for left in handles.left.values() for handle in left})


class _Handles(Generic[Handle]):
    """Jobs of one queue and futures of them, by the number of their job."""

    def __init__(self, given: Iterable[Handle]) -> None:
        self.left: dict[int, list[Handle]] = {}
        place: Job[Any] | None = None
        for handle in dict.fromkeys(given):
            job = handle if isinstance(handle, Job) else getattr(handle, "job", None)
            if not isinstance(job, Job):
                raise UsageError(
                    f"{handle!r} is neither a job nor a future of a stoker.Executor",
                    "concurrent.futures.wait takes all kinds of futures, those of stoker included",
                )
            place = place or job
            if job.state_dir != place.state_dir:
                raise UsageError(
                    "jobs of two queues cannot be waited for together",
                    f"wait for those in `{place.state_dir}` and those in `{job.state_dir}` apart",
                )
            self.left.setdefault(job.id, []).append(handle)
        if place is not None:
            self.settings = place._settings
        self.count = sum(map(len, self.left.values()))

    def take_done(self) -> list[Handle]:
        """Futures that are done: one that was cancelled is, while its job still stops."""
        done: list[Handle] = []
        for id, handles in list(self.left.items()):
            ended = [one for one in handles if not isinstance(one, Job) and one.done()]
            done += ended
            self.left[id] = [one for one in handles if one not in ended]
            if not self.left[id]:
                del self.left[id]
        return done

    def take(self, id: int, state: str | None) -> list[Handle]:
        """The job has ended: its handles, of which no future is behind its job."""
        from concurrent.futures import wait

        handles = self.left.pop(id)
        for one in handles:
            if not isinstance(one, Job):
                one._settle(state)
                wait([one])  # the watcher's thread may be the one that sets the result
        return handles
