"""Handles of jobs: query, wait, cancel."""

from __future__ import annotations

import asyncio
import concurrent.futures
import pickle
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import stoker
from stoker.client.live.finish_watch import watcher
from stoker.client.queue_connections import thread_queue
from stoker.errors import NotFound, UsageError
from stoker.python.api import Queue, job, submit
from stoker.python.job import Job
from stoker.python.job_errors import JobFailed
from stoker.python.wait import FIRST_COMPLETED, FIRST_EXCEPTION, as_completed, wait
from tests.lab import Lab
from tests.python import job_functions

held_double = job_functions.double.options(hold=True)


def test_result_of_a_command_is_zero_or_raises(here: Lab) -> None:
    good, words = submit("echo one; echo two"), submit(["echo", "$HOME"], gpus=0)
    assert (good.result(), words.result()) == (0, 0)
    assert (good.log(), good.log(1), words.log()) == ("one\ntwo\n", "two\n", "$HOME\n")
    bad = submit("echo before; exit 3")
    with pytest.raises(JobFailed) as caught:
        bad.result()
    error = pickle.loads(pickle.dumps(caught.value))
    assert str(error) == "job 3 failed: exit 3\nlast lines of its log:\n    before"
    assert (error.state, error.cause, error.exit_code, error.log) == (
        "failed", "exit", 3, ("before",),
    )  # fmt: skip


def test_log_is_filtered_like_stoker_log(here: Lab) -> None:
    made = submit(r"printf '10%%\r100%%\n\033]0;title\007safe\n\377\n'")
    made.wait()
    assert made.log() == "100%\nsafe\n\\xff\n"
    assert made.log() == here.log(made.id)


def test_handle_shows_the_state_of_its_job(here: Lab, gate: Callable[..., str]) -> None:
    path = gate()
    busy = job(job_functions.pass_gate, gpus=2).submit(path)
    here.wait_until(busy.running)
    waiting = job(job_functions.add, gpus=2).submit(1)
    assert (waiting.state, waiting.done(), waiting.running()) == ("queued", False, False)
    assert "GPU 0 runs job" in waiting.why()
    assert waiting.why() == here.ok("why", str(waiting.id)).strip().partition("waits: ")[2]
    Path(path).write_text("go")
    assert (waiting.result(), waiting.done(), waiting.exit_code) == (2, True, 0)


def test_program_reads_parameters_metrics_and_folders_of_a_job(here: Lab) -> None:
    report = (
        'mkdir -p $STOKER_CHECKPOINT_DIR; echo \'{"loss": 2}\n{"loss": 0.5}\' > $STOKER_METRICS'
    )
    plain = submit(f"{report}; echo $STOKER_OUTPUT_DIR $STOKER_CHECKPOINT_DIR; true --lr 0.1 --amp")
    plain.wait()
    assert (plain.params, plain.metrics) == ({"lr": 0.1, "amp": True}, {"loss": 0.5})
    assert plain.log() == f"{plain.output_dir} {plain.checkpoint_dir}\n"
    assert plain.checkpoint_dir.is_dir()
    sweep = stoker.sweep("echo stoker: acc={x}; echo $STOKER_CHECKPOINT_DIR", {"x": [3]}, gpus=0)
    sweep.wait()
    (trial,) = sweep.jobs()
    assert (trial.params, trial.metrics) == ({"x": 3}, {"acc": 3})
    assert trial.log().splitlines()[1] == str(trial.checkpoint_dir)
    shown = here.job(trial.id)
    assert (shown["params"], shown["metrics"]["acc"]["last"]) == (trial.params, 3)
    assert shown["output_dir"] == str(trial.output_dir)


def test_wait_times_out(here: Lab) -> None:
    held = held_double.submit(1)
    with pytest.raises(TimeoutError, match="job 1 has not finished after 0 s"):
        held.result(timeout=0)
    with pytest.raises(TimeoutError):
        held.exception(timeout=0)
    assert held.wait(timeout=0) is False
    with pytest.raises(TimeoutError, match="1 of 1 jobs have not finished"):
        list(as_completed([held], timeout=0))
    assert held.release() and not held.release()
    assert held.wait() is True


def test_queue_waits_for_the_newest_job_of_a_name_and_for_whole_sweeps(here: Lab) -> None:
    submit("false", name="train").wait()
    good = submit("true", name="train")
    assert Queue().wait("train").done == {good}
    again = stoker.sweep("echo stoker: y={x}", {"x": "interval(0, 1)"}, name="s", method="tpe",
                         trials=2, metric="y:min", max_parallel=1, gpus=0)  # fmt: skip
    found = Queue().wait("sweep:s")
    assert (len(found.done), found.done) == (2, set(again.jobs()))


def test_cancelled_job_raises_like_a_cancelled_future(here: Lab, gate: Callable[..., str]) -> None:
    waiting, running = held_double.submit(1), submit(job_functions.pass_gate, gate())
    here.wait_until(running.running)
    assert waiting.cancel() and running.cancel()
    for handle in (waiting, running):
        with pytest.raises(concurrent.futures.CancelledError, match="was cancelled: by the user"):
            handle.result()
        with pytest.raises(concurrent.futures.CancelledError):
            handle.exception()
        assert handle.cancelled()
    assert waiting.cancel()  # true, as with futures, if it is already cancelled
    ended = submit("true")
    ended.wait()
    assert not ended.cancel()


def test_removed_job_is_not_found(here: Lab) -> None:
    gone = submit("true")
    gone.wait()
    here.ok("rm", str(gone.id))
    with pytest.raises(NotFound, match=f"there is no job {gone.id}"):
        gone.result()
    assert repr(gone) == f"<Job {gone.id}>"


def test_handles_are_equal_by_queue_and_id_and_can_be_pickled(here: Lab) -> None:
    first = job_functions.double.submit(21)
    again = pickle.loads(pickle.dumps(first))
    assert again == first == Queue().job(first.id) and len({first, again}) == 1
    assert again != Job(first._settings._replace(state_dir="/elsewhere"), first.id)
    assert again.result() == 42


def test_handle_can_be_passed_to_a_job(here: Lab) -> None:
    first = job_functions.double.submit(21)
    second = job(Job.result, gpus=0, after=first).submit(first)
    assert second.result() == 42


def test_html_is_escaped(here: Lab) -> None:
    made = submit("echo '<script>'", name="<b>&\x1b[31m", hold=True)
    shown = made._repr_html_()
    assert "<script>" not in shown and "&lt;script&gt;" in shown
    assert "&lt;b&gt;&amp;\\x1b[31m" in shown
    assert repr(made) == "<Job 1 <b>&\\x1b[31m: held>"


# -- many ----------------------------------------------------------------------------------------


def test_as_completed_yields_jobs_as_they_finish(here: Lab, gate: Callable[..., str]) -> None:
    paths = [gate(f"gate{i}") for i in range(3)]
    jobs = job(job_functions.pass_gate, gpus=0).map(paths, range(3))
    ends = as_completed([*jobs, jobs[0]])
    for i in (2, 0, 1):
        Path(paths[i]).write_text("go")
        assert next(ends).result() == i
    assert list(ends) == []
    assert [handle.result() for handle in as_completed(jobs)] == [
        2,
        0,
        1,
    ]  # same order again


def test_wait_for_several_jobs(here: Lab, gate: Callable[..., str]) -> None:
    path = gate()
    slow = job(job_functions.pass_gate, gpus=0).submit(path)
    good, bad, held = job_functions.double.submit(1), submit("exit 1"), held_double.submit(1)
    assert good in wait([slow, good], return_when=FIRST_COMPLETED).done
    done, not_done = wait([slow, bad, held], return_when=FIRST_EXCEPTION)
    assert (done, not_done) == ({bad}, {slow, held})
    assert wait([held, bad], timeout=0) == ({bad}, {held})
    Path(path).write_text("go")
    assert wait([slow, good, bad]).not_done == set()
    assert wait([]) == (set(), set())
    with pytest.raises(UsageError):
        wait([good], return_when="SOMETIME")


def test_wait_for_a_thousand_jobs_needs_one_query(here: Lab) -> None:
    jobs = held_double.map(range(1000))
    Queue().cancel(*jobs[:999])
    queries: list[str] = []
    connection = thread_queue(jobs[0]._settings).db.connection
    connection.set_trace_callback(queries.append)
    try:
        done, not_done = wait(jobs, timeout=0)
        assert (len(done), not_done) == (999, {jobs[999]})
        assert len(queries) <= 3, queries
    finally:
        connection.set_trace_callback(None)


def test_jobs_of_two_queues_cannot_be_awaited_together(here: Lab, tmp_path: Path) -> None:
    one, other = Queue().submit("true", hold=True), Queue(tmp_path / "o").submit("true", hold=True)
    with pytest.raises(UsageError, match="two queues"):
        wait([one, other])
    with pytest.raises(UsageError, match="is in another queue"):
        Queue().cancel(other)
    with pytest.raises(UsageError, match="is in another queue"):
        submit("true", after=other)


def test_handles_work_in_any_thread(here: Lab) -> None:
    made = job_functions.double.submit(4)
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(made.result()))
    thread.start()
    thread.join()
    assert answers == [made.result()]


def test_queue_finds_and_changes_jobs(here: Lab) -> None:
    queue = Queue()
    jobs = queue.map(held_double, range(3))
    assert queue.jobs() == jobs and queue.jobs("2-3") == jobs[1:] and queue.jobs("doubler") == jobs
    assert queue.release(jobs[0]) == 1 and queue.cancel(2, jobs[2]) == 2
    assert queue.wait().not_done == set() and jobs[0].wait()
    assert queue.jobs() == []
    again = queue.rerun(jobs[0])
    assert [handle.result() for handle in again] == [0]
    with pytest.raises(NotFound):
        queue.job(99)


# -- asyncio -------------------------------------------------------------------------------------


def test_awaiting_a_job_does_not_block_the_loop(here: Lab, gate: Callable[..., str]) -> None:
    path = gate()

    async def open_gate() -> str:
        Path(path).write_text("go")  # would block forever if `await` blocked the loop
        return "opened"

    async def main() -> list[object]:
        made = job(job_functions.pass_gate, gpus=0).submit(path, "through")
        return list(await asyncio.gather(made, open_gate(), submit(job_functions.later, 4)))

    assert asyncio.run(main()) == ["through", "opened", 8]


def test_awaited_job_raises_the_exception_of_its_function(here: Lab) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="no data"):
            await submit(job_functions.fail, "no data")
        with pytest.raises(RuntimeError, match="raised StopIteration"):
            await submit(next, iter(()))

    asyncio.run(main())


def test_awaited_jobs_share_one_thread_and_can_be_abandoned(here: Lab) -> None:
    others = set(threading.enumerate())

    async def main() -> int:
        jobs = held_double.map(range(50))
        tasks = [asyncio.ensure_future(handle) for handle in jobs]
        await asyncio.sleep(0)
        watchers = set(threading.enumerate()) - others
        tasks[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        assert jobs[0].state == "held"  # cancelling the task does not cancel the job
        assert set(watcher(jobs[0]._settings)._callbacks) == {handle.id for handle in jobs[1:]}
        Queue().release(*jobs)
        assert await asyncio.gather(*tasks[1:3]) == [2, 4]
        Queue().cancel(*jobs)
        await asyncio.wait(tasks)
        return len(watchers)

    assert asyncio.run(main()) == 1


def test_nan_is_neither_a_timeout_nor_a_grace_period(here: Lab) -> None:
    held = held_double.submit(1)
    nan = float("nan")
    for ask in (held.wait, held.result, lambda timeout: wait([held], timeout)):
        with pytest.raises(UsageError, match="the timeout is nan"):
            ask(nan)
    for bad in (nan, float("inf"), -1.0):
        with pytest.raises(UsageError, match="invalid grace period"):
            held.cancel(grace=bad)
    assert held.state == "held"
