"""`stoker.Executor`: jobs with the interface of concurrent.futures."""

from __future__ import annotations

import asyncio
import concurrent.futures
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.errors import UsageError
from stoker.python.api import Queue
from stoker.python.executor import Executor
from tests.lab import Lab
from tests.python import job_functions


def test_calls_run_as_jobs(here: Lab) -> None:
    with Executor(gpus=0, name="pool", tags=["mine"]) as executor:
        assert isinstance(executor, concurrent.futures.Executor)
        future = executor.submit(job_functions.add, 1, b=4)
        assert future.result() == 5
        assert (future.done(), future.running(), future.cancelled()) == (True, False, False)
        bad = executor.submit(job_functions.fail, "no data")
        assert repr(bad.exception()) == "ValueError('no data')"
        facts = future.job.info()
        assert (facts["name"], facts["tags"], facts["gpus"]) == ("pool", ["mine"], 0)
        own = executor.submit(job_functions.double, 4)
        assert (own.result(), own.job.name) == (
            8,
            "doubler",
        )  # own options win
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(job_functions.add, 1)


def test_map_returns_results_in_order_and_submits_all_at_once(here: Lab) -> None:
    with Executor(gpus=0) as executor:
        results = executor.map(job_functions.add, [1, 2, 3], [10, 20, 30])
        assert [facts.info()["batch_index"] for facts in Queue().jobs("all")] == [0, 1, 2]
        assert list(results) == [11, 22, 33]


def test_abandoned_map_cancels_waiting_jobs(here: Lab) -> None:
    with Executor(gpus=0, hold=True) as executor:
        results = executor.map(job_functions.add, range(5), timeout=0)
        with pytest.raises(TimeoutError):
            next(results)
        assert {handle.state for handle in Queue().jobs("all")} == {"cancelled"}


def test_futures_work_with_concurrent_futures_functions(here: Lab) -> None:
    with Executor(gpus=0) as executor:
        futures = [executor.submit(job_functions.add, n) for n in range(3)]
        ended = concurrent.futures.as_completed(futures)
        assert sorted(future.result() for future in ended) == [1, 2, 3]


def test_waiting_or_running_future_can_be_cancelled(here: Lab, gate: Callable[..., str]) -> None:
    executor = Executor(gpus=1)
    running = executor.submit(job_functions.pass_gate, gate())
    here.wait_until(running.running)
    waiting = Executor(gpus=1, hold=True).submit(job_functions.add, 1)
    assert not waiting.running()
    for future in (running, waiting):
        assert future.cancel() and future.cancelled() and future.done()
        assert future.cancel()
        with pytest.raises(concurrent.futures.CancelledError):
            future.result(timeout=0)
        future.job.wait()
        assert future.job.state == "cancelled"
    assert concurrent.futures.wait({running}).not_done == set()
    assert concurrent.futures.wait({waiting}).not_done == set()


def test_job_cancelled_elsewhere_is_a_cancelled_future(here: Lab) -> None:
    future = Executor(hold=True).submit(job_functions.add, 1)
    here.ok("cancel", str(future.job.id))
    assert concurrent.futures.wait([future]).done == {future}
    assert future.cancelled()


def test_shutdown_cancels_waiting_jobs_and_waits_for_the_rest(
    here: Lab, gate: Callable[..., str]
) -> None:
    path = gate()
    executor = Executor(gpus=2)
    running = executor.submit(job_functions.pass_gate, path, "through")
    here.wait_until(running.running)
    waiting = [executor.submit(job_functions.add, n) for n in range(3)]
    executor.shutdown(wait=False, cancel_futures=True)
    assert all(future.cancelled() for future in waiting) and not running.done()
    Path(path).write_text("go")
    executor.shutdown()
    assert running.result(timeout=0) == "through"


def test_executor_works_with_asyncio(here: Lab) -> None:
    async def main() -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        with Executor(gpus=0) as executor:
            return await asyncio.gather(
                loop.run_in_executor(executor, job_functions.add, 1),
                asyncio.wrap_future(executor.submit(job_functions.add, 2)),
            )

    assert tuple(asyncio.run(main())) == (2, 3)


def test_invalid_executor_options_are_refused(here: Lab) -> None:
    with pytest.raises(UsageError, match="`gpu` is not an option of a job"):
        Executor(gpu=1)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="`dedupe` is a key for a single job"):
        Executor(dedupe="a")


def test_wait_and_as_completed_accept_futures(here: Lab, gate: Callable[..., str]) -> None:
    path = gate()
    executor = Executor(gpus=0)
    slow: Any = executor.submit(job_functions.pass_gate, path, 7)
    fast: Any = executor.submit(job_functions.add, 1)
    done, not_done = stoker.wait([slow, fast], return_when="FIRST_COMPLETED")
    assert (done, not_done) == ({fast}, {slow}) and fast.done()
    job = stoker.job(job_functions.add, gpus=0).submit(4)
    ended = stoker.as_completed([slow, job, fast, slow.job])
    assert {next(ended), next(ended)} == {job, fast}
    Path(path).write_text("go")
    assert {next(ended), next(ended)} == {slow, slow.job}
    assert slow.done() and slow.result(timeout=0) == 7
    cancelled = Executor(hold=True).submit(job_functions.add, 1)
    cancelled.cancel()
    assert stoker.wait([cancelled], timeout=0).done == {cancelled}
    with pytest.raises(UsageError, match="neither a job nor a future"):
        stoker.wait([concurrent.futures.Future()])  # type: ignore[type-var]


def test_max_workers_limits_how_many_jobs_run_at_a_time(
    here: Lab, gate: Callable[..., str]
) -> None:
    paths = [gate(f"gate{i}") for i in range(4)]
    executor = Executor(2, gpus=0)
    futures = [executor.submit(job_functions.pass_gate, path) for path in paths]
    here.wait_until(lambda: [future.job.state for future in futures[:2]] == ["running"] * 2)
    other = Executor(gpus=0).submit(job_functions.add, 1)
    assert other.result() == 2  # a slot is free, but not for this executor
    assert [future.job.state for future in futures[2:]] == ["queued"] * 2
    assert "already has 2 running, which is its limit" in futures[2].job.why()
    for path in paths:
        here.wait_until(lambda: any(future.running() for future in futures))
        Path(path).write_text("go")
    executor.shutdown()
    assert all(future.done() for future in futures)


@pytest.mark.parametrize("number", [0, -1])
def test_max_workers_must_be_positive(here: Lab, number: int) -> None:
    with pytest.raises(ValueError, match="max_workers must be greater than 0"):
        Executor(number)


def test_pool_arguments_are_refused_with_a_hint(here: Lab) -> None:
    with pytest.raises(UsageError, match="`initializer` is not supported"):
        Executor(initializer=print)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match=r"Executor\(queue="):
        Executor(Queue())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"max_workers must be an integer, not 1.5"):
        Executor(1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0, -1])
def test_map_sizes_are_checked(here: Lab, size: int) -> None:
    executor = Executor(gpus=0)
    with pytest.raises(ValueError, match="chunksize"):
        executor.map(job_functions.add, [1], chunksize=size)
    with pytest.raises(ValueError, match="buffersize"):
        executor.map(job_functions.add, [1], buffersize=size)
    with pytest.raises(TypeError, match="buffersize must be an integer or None"):
        executor.map(job_functions.add, [1], buffersize=2.0)  # type: ignore[arg-type]
    assert Queue().jobs("all") == []


def test_map_keeps_no_reference_to_yielded_results(here: Lab) -> None:
    seen = []
    for model in Executor(gpus=0).map(job_functions.Model, [1, 2]):
        seen.append(weakref.ref(model))
        del model
        assert seen[-1]() is None
    assert len(seen) == 2
