"""Handles of jobs: query, wait, cancel, get the result.

    job = stoker.submit("python train.py")
    job.wait()
    print(job.state, job.log())

A handle is a queue and a job number. It can be pickled and used in any process of the same user on
the same host, at any time. Nothing is cached: every property is read from the queue.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, cast

from stoker.errors import NotFound, UsageError
from stoker.features.notes.python import Annotated
from stoker.python.job_errors import JobFailed, JobLost, RemoteTraceback
from stoker.states import ACTIVE, CANCELLED, DONE, FINAL, LOST

if TYPE_CHECKING:
    from stoker.client.queue import Queue
    from stoker.engine.store.job_queries import JobRow
    from stoker.functions.payload import CallResult
    from stoker.settings import Settings

T_co = TypeVar("T_co", covariant=True)

_LAST_LINES = 10


class Job(Annotated, Generic[T_co]):
    """A job. `Job[float]` is a call that returns a float; commands are `Job[int]`.

    >>> job = submit("python train.py", gpus=1)     # doctest: +SKIP
    >>> job.result(timeout=3600)                    # doctest: +SKIP
    0
    """

    def __init__(self, settings: Settings, id: int, together: Sequence[int] = ()) -> None:
        self._settings = settings
        self.id = id
        self._together = together  # the jobs of one `map`, whose progress is shown together

    @property
    def state_dir(self) -> str:
        """The state folder of its queue."""
        return self._settings.state_dir

    # -- query -------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """held, queued, starting, running, stopping, done, failed, cancelled or lost."""
        return self._row().state

    @property
    def name(self) -> str | None:
        return self._row().name

    @property
    def exit_code(self) -> int | None:
        """The exit code of the latest attempt; None if there is none yet."""
        from stoker.client.views.job import exit_code

        return exit_code(self._row())

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of a trial; of another command, its options: `--lr 0.1` is {"lr": 0.1}."""
        from stoker.features.results.reports.metric_cache import params_of

        return params_of(self._queue().db, self._row())

    @property
    def metrics(self) -> dict[str, Any]:
        """The last value of each metric that it has reported so far."""
        from stoker.features.results.reports.metric_cache import Reports

        found: dict[str, Any] = Reports(self._settings.state_dir).metrics(self._row())
        return {name: stat["last"] for name, stat in found.items()}

    @property
    def output_dir(self) -> Path:
        """Its $STOKER_OUTPUT_DIR; it may not exist."""
        from stoker.client.views.job import output_folder

        return Path(output_folder(self._settings, self._row()))

    @property
    def checkpoint_dir(self) -> Path:
        """Its $STOKER_CHECKPOINT_DIR; it may not exist."""
        return self.output_dir / "checkpoints"

    def done(self) -> bool:
        """Whether it has finished, successfully or not."""
        return self.state in FINAL

    def running(self) -> bool:
        return self.state in ACTIVE

    def cancelled(self) -> bool:
        return self.state == CANCELLED

    def info(self) -> dict[str, Any]:
        """The job as in `stoker ls --json`."""
        from stoker.client.views import job as views

        queue = self._queue()
        return views.job_json(queue.db, queue.settings, self._row())

    def why(self) -> str:
        """Why it waits, as in `stoker why`; "" if it is about to start."""
        from stoker.client.views import why as wait_reasons

        queue = self._queue()
        return "; ".join(wait_reasons.why(queue.db, queue.settings, self._row()))

    def log(self, lines: int | None = None) -> str:
        """Its output as in `stoker log`: progress bars collapsed, escape sequences removed."""
        from stoker.client.live.log_text import last_lines, log_text
        from stoker.client.views.job import log_paths

        path = log_paths(self._settings, self._row())[0]
        if path is None:
            return ""
        if lines is None:
            return log_text(path)
        return "".join(f"{line}\n" for line in last_lines(path, lines))

    # -- wait --------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None, *, progress: bool | None = None) -> bool:
        """Wait until it has finished; return False after `timeout` seconds.

        Meanwhile a terminal and a notebook show progress; `progress=False`: never, True: always.
        """
        try:
            self._final_row(timeout, progress)
        except TimeoutError:
            return False
        return True

    def result(self, timeout: float | None = None, *, progress: bool | None = None) -> T_co:
        """Wait like `wait`, then return the value of a call, or 0 for a command.

        Raises the exception of the function (with the traceback from the job as its cause),
        JobFailed, JobLost, concurrent.futures.CancelledError, or TimeoutError.
        """
        return self._value(self._final_row(timeout, progress))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait, then return what `result` would raise, or None. Raises for cancelled jobs."""
        row = self._final_row(timeout)
        if row.state == CANCELLED:
            _raise_cancelled(row)
        try:
            self._value(row)
        except Exception as error:
            return error
        return None

    def __await__(self) -> Generator[Any, None, T_co]:
        """`await job` is `job.result()` for asyncio. Cancelling the task does not cancel the
        job."""
        return self._awaited().__await__()

    async def _awaited(self) -> T_co:
        import asyncio

        from stoker.client.live.finish_watch import watcher

        loop = asyncio.get_running_loop()
        finished: asyncio.Future[T_co] = loop.create_future()

        def set_outcome(value: T_co | None, error: BaseException | None) -> None:
            if finished.done():
                return
            if isinstance(error, StopIteration):  # asyncio futures refuse it
                error, cause = RuntimeError(f"job {self.id} raised StopIteration"), error
                error.__cause__ = cause
            if error is not None:
                finished.set_exception(error)
            else:
                finished.set_result(cast("T_co", value))

        def notify(_: str | None) -> None:  # on the watcher thread, because reading may be slow
            value, error = self._outcome()
            loop.call_soon_threadsafe(set_outcome, value, error)

        watching = watcher(self._settings)
        watching.add(self.id, notify)
        try:
            return await finished
        finally:
            watching.forget(self.id, notify)

    def _outcome(self) -> tuple[T_co | None, BaseException | None]:
        """Return (value, None) or (None, exception) of a finished job.

        Never raises an exception of user code, because it runs on the watcher thread. A SystemExit
        or similar from unpickling is returned as a RuntimeError, which asyncio and
        concurrent.futures accept.
        """
        try:
            return self.result(0), None
        except Exception as error:
            # Its traceback would keep the frames of the watcher thread as long as the exception.
            return None, error.with_traceback(None)
        except BaseException as error:
            text = f"the result of job {self.id} cannot be unpickled: {type(error).__name__}"
            wrapped = RuntimeError(f"{text}: {error}")
            wrapped.__cause__ = error
            return None, wrapped

    # -- change ------------------------------------------------------------------------------

    def cancel(self, grace: float | None = None) -> bool:
        """Remove it from the queue, or stop it; return False if it had already finished."""
        return any(self._queue().cancel([self.id], grace)) or self.cancelled()

    def hold(self) -> bool:
        """Keep it from starting until `release`; return False if it is not waiting."""
        return bool(self._queue().hold([self.id]))

    def release(self) -> bool:
        """Let it start; return False if it was not held."""
        return bool(self._queue().release([self.id]))

    def rerun(self) -> Job[T_co]:
        """Submit a new job with the same command and options."""
        return Job(self._settings, self._queue().rerun([self.id])[0])

    # -- as an object ------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Job):
            return NotImplemented
        return (self.state_dir, self.id) == (other.state_dir, other.id)

    def __hash__(self) -> int:
        return hash((self.state_dir, self.id))

    def __reduce__(self) -> tuple[Any, ...]:
        return open_job, (self.state_dir, self.id)

    def __repr__(self) -> str:
        from stoker.text.terminal import printable

        try:
            row = self._row()
        except Exception:  # the job was removed, or the queue cannot be read
            return f"<Job {self.id}>"
        name = f" {row.name}" if row.name else ""
        return printable(f"<Job {self.id}{name}: {row.state}>")

    def _repr_html_(self) -> str:
        from html import escape

        from stoker.client.views import job as views
        from stoker.text.commands.shell_words import display
        from stoker.text.terminal import printable

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

    def _target(self) -> tuple[Queue, int | str]:
        return self._queue(), self._row().id

    def _queue(self) -> Queue:
        from stoker.client.queue_connections import thread_queue

        return thread_queue(self._settings, creates=False)

    def _row(self) -> JobRow:
        from stoker.engine.store import job_queries

        return job_queries.job(self._queue().db, self.id)

    def _final_row(self, timeout: float | None, progress: bool | None = None) -> JobRow:
        from stoker.client.live.finish_watch import FinishWatch
        from stoker.python.wait import WaitLine

        try:
            with WaitLine(self._settings, self._together or [self.id], progress) as line:
                watch = FinishWatch(self._settings, [self.id], line.refresh)
                for _ in watch.until(deadline(timeout)):
                    pass
        except TimeoutError:
            raise TimeoutError(f"job {self.id} has not finished after {timeout:g} s") from None
        return self._row()

    def _value(self, row: JobRow) -> T_co:
        """The result of a finished job; raises like `result`."""
        from stoker.functions.call import folder_of

        if row.state == CANCELLED:
            _raise_cancelled(row)
        folder = None if row.shell else folder_of(row.argv)
        result = None if folder is None else _result_of(folder, row)
        if result is not None and result.traceback is not None:
            raise self._remote_error(result, row)
        if row.state != DONE or (folder is not None and result is None):
            raise self._failure(row)  # also if it failed after it had written a value
        if result is None or result.value is None:
            return cast("T_co", 0)
        import pickle

        return cast("T_co", pickle.loads(result.value))

    def _remote_error(self, result: CallResult, row: JobRow) -> Exception:
        import pickle

        error: Exception | None = None
        if result.error is not None:
            try:
                error = pickle.loads(result.error)
            except KeyboardInterrupt:
                raise
            except BaseException:  # its module cannot be imported here; use its text
                error = None
        if not isinstance(error, Exception):
            error = self._failure(row, result.summary)
        error.__cause__ = RemoteTraceback(result.traceback or result.summary)
        return error

    def _failure(self, row: JobRow, words: str = "") -> JobFailed:
        from stoker.client.live.log_text import last_lines
        from stoker.client.views import job as views
        from stoker.text.terminal import printable

        path = views.log_paths(self._settings, row)[0]
        kind = JobLost if row.state == LOST else JobFailed
        if not words:
            words = views.result_words(row) or "it wrote no result"
        return kind(
            job=row.id,
            state=row.state,
            words=printable(words),
            cause=row.cause or row.attempt_cause,
            exit_code=views.exit_code(row),
            signal=views.signal_number(row),
            log=tuple(last_lines(path, _LAST_LINES)) if path is not None else (),
        )


def _result_of(folder: str, row: JobRow) -> CallResult | None:
    """The result of the latest attempt; None if it did not write one."""
    from stoker.functions import payload, payload_files

    if row.state == LOST or (row.cause or row.attempt_cause) == "time_limit":
        return None
    try:
        result = payload.read_call_result(payload_files.read_result(folder, row.id))
    except NotFound:
        return None
    return result if result.attempt == row.attempts else None


def open_job(state_dir: str, id: int) -> Job[Any]:
    """Unpickle a handle. Pickles contain this name."""
    from stoker.settings import load_settings

    return Job(load_settings()._replace(state_dir=state_dir), id)


def _raise_cancelled(row: JobRow) -> NoReturn:
    from concurrent.futures import CancelledError

    from stoker.client.views.job import result_words

    raise CancelledError(f"job {row.id} was cancelled: {result_words(row)}")


def deadline(timeout: float | None) -> float | None:
    """The monotonic time after `timeout` seconds; None without a timeout."""
    if timeout is not None and timeout != timeout:
        raise UsageError("the timeout is nan", "pass seconds, or None to wait without a limit")
    return None if timeout is None else time.monotonic() + timeout


def seconds_left(deadline: float | None) -> float | None:
    """The seconds until a monotonic time, at least 0; None without a deadline."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())
