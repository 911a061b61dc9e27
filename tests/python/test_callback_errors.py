"""Exceptions in user code (callbacks, unpickling) do not stop the thread that watches jobs."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Callable

import pytest

import stoker
from stoker.python.executor import Executor
from stoker.python.job_errors import JobFailed
from tests.lab import Lab
from tests.python import job_functions

SENT = (SystemExit, KeyboardInterrupt, GeneratorExit, ValueError)


@pytest.mark.parametrize("kind", SENT)
def test_raising_callback_stops_no_future(
    here: Lab, kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    called: list[object] = []

    def bad(_: object) -> None:
        raise kind("from a callback")

    with caplog.at_level(logging.ERROR, "concurrent.futures"), Executor(gpus=0) as executor:
        first = executor.submit(job_functions.add, 1)
        first.add_done_callback(bad)
        first.add_done_callback(called.append)
        assert first.result() == 2
        assert executor.submit(job_functions.add, 2).result() == 3
    here.wait_until(lambda: called == [first])
    assert "exception calling callback" in caplog.text and "from a callback" in caplog.text


@pytest.mark.parametrize(
    "function", [job_functions.return_what_exits, job_functions.raise_what_exits]
)
def test_unpickling_that_exits_is_an_exception_of_its_future(
    here: Lab, function: Callable[[], object]
) -> None:
    with Executor(gpus=0) as executor:
        bad = executor.submit(function)
        error = bad.exception()
        assert isinstance(error, (RuntimeError, JobFailed)), error
        assert "SystemExit" in f"{error}{error.__cause__}" or "no data" in str(error)
        assert executor.submit(job_functions.add, 2).result() == 3


def test_exception_of_a_future_does_not_keep_the_watcher_thread(here: Lab) -> None:
    with Executor(gpus=0) as executor:
        error = executor.submit(job_functions.fail, "x").exception()
    assert error is not None and error.__traceback__ is None


def test_pickling_that_exits_fails_the_job(here: Lab) -> None:
    with Executor(gpus=0) as executor:
        bad = executor.submit(job_functions.return_what_cannot_be_sent)
        assert "cannot be pickled" in str(bad.exception())


def test_unpickling_that_exits_does_not_stop_the_event_loop(here: Lab) -> None:
    async def main() -> int:
        with pytest.raises(RuntimeError, match="SystemExit"):
            await stoker.job(job_functions.return_what_exits, gpus=0).submit()
        return await stoker.job(job_functions.add, gpus=0).submit(2)

    assert asyncio.run(main()) == 3


def test_waiting_threads_see_a_cancelled_future_despite_a_bad_callback(here: Lab) -> None:
    def bad(_: object) -> None:
        raise SystemExit("from a callback")

    with Executor(hold=True) as executor:
        future = executor.submit(job_functions.add, 1)
        future.add_done_callback(bad)
        with pytest.raises(SystemExit):
            future.cancel()  # on the caller's thread, as with any future
        assert concurrent.futures.wait([future]).done == {future}


def test_callback_may_wait_for_another_future_and_shut_down(here: Lab) -> None:
    results: list[object] = []
    ended = threading.Event()

    def follow(_: object) -> None:
        other = Executor(gpus=0)
        results.append(other.submit(job_functions.add, 10).result())
        other.submit(job_functions.add, 20)
        other.shutdown()
        ended.set()

    with Executor(gpus=0) as executor:
        executor.submit(job_functions.add, 1).add_done_callback(follow)
    assert ended.wait() and results == [11]
