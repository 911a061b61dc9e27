"""Futures and handles when processes fork or exit, or the queue is deleted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import stoker
from stoker.client.queue_connections import thread_queue
from stoker.engine.daemon.start import wake_daemon
from stoker.errors import NotFound
from stoker.python.executor import Executor
from stoker.settings import load_settings
from tests.lab import Lab
from tests.python import job_functions


def in_forked_process(what: Callable[[], object]) -> int:
    """Run a function in a forked process; return its exit code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns about threads
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            what()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_future_in_a_forked_process_fails_with_a_hint(here: Lab, gate: Callable[..., str]) -> None:
    path = gate()
    executor = Executor(gpus=0)
    future = executor.submit(job_functions.pass_gate, path, 5)
    here.wait_until(future.running)
    called: list[object] = []
    future.add_done_callback(called.append)

    def child() -> None:
        with pytest.raises(RuntimeError, match=r"future\.job\.result"):
            future.result()
        assert executor.submit(job_functions.add, 1).result() == 2
        executor.shutdown()
        assert called == []
        Path(path).write_text("go")
        assert future.job.result() == 5

    assert in_forked_process(child) == 0
    assert future.result() == 5
    executor.shutdown()
    assert called == [future]


def script(lab: Lab, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(text)],
        env={**lab.env, "PYTHONPATH": os.getcwd()},
        capture_output=True, text=True,
    )  # fmt: skip


def test_interpreter_exits_with_pending_futures_and_jobs_continue(here: Lab) -> None:
    done = script(here, """
        import stoker
        from tests.python import job_functions
        executor = stoker.Executor(gpus=0, hold=True)
        future = executor.submit(job_functions.add, 1)
        future.add_done_callback(print)
        print(future.job.id)
    """)  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
    job = stoker.Queue().job(1)
    assert job.release() and job.result() == 2


def test_connections_are_closed_at_exit(here: Lab) -> None:
    done = script(here, """
        import threading, stoker
        from tests.python import job_functions
        job = stoker.job(job_functions.add, gpus=0).submit(1)
        thread = threading.Thread(target=job.result)
        thread.start(), thread.join()
        print(stoker.Executor(gpus=0).submit(job_functions.add, 1).result(), job.state)
    """)  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "2 done\n", "")


def test_connection_of_a_thread_is_closed_at_its_end_although_an_exception_refers_to_it(
    here: Lab,
) -> None:
    def fail() -> None:
        queue = thread_queue(load_settings())
        raise ValueError(queue)

    with ThreadPoolExecutor(1) as pool:
        error = pool.submit(fail).exception()
    assert error is not None
    path = str(here.state_dir / "queue.db")
    opened = {os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")}
    assert path not in opened


def test_submit_at_interpreter_exit_is_queued_or_refused(here: Lab) -> None:
    done = script(here, """
        import atexit, stoker
        from tests.python import job_functions
        executor = stoker.Executor(gpus=0, hold=True)
        def late():
            try:
                print(executor.submit(job_functions.add, 1).job.id)
            except RuntimeError as error:
                print(error)
        atexit.register(late)
    """)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    count = len(stoker.Queue().jobs("all"))
    refused = "cannot schedule new futures" in done.stdout
    assert (count, refused) in {(1, False), (0, True)}


def test_deleted_queue_ends_all_waiting_with_an_error(here: Lab, tmp_path: Path) -> None:
    queue = stoker.Queue(tmp_path / "gone")
    future = Executor(queue=queue, hold=True).submit(job_functions.add, 1)
    handle = future.job
    assert handle.state == "held"
    here.wait_until(lambda: wake_daemon(queue.state_dir))  # until the daemon has started
    here.ok("daemon", "stop", STOKER_STATE_DIR=queue.state_dir)
    os.rename(tmp_path / "gone", tmp_path / "away")  # atomic; processes may still write into it
    for ask in (future.result, handle.result, lambda: handle.state, lambda: stoker.wait([handle])):
        with pytest.raises(NotFound, match="there is no queue in"):
            ask()
    assert not (tmp_path / "gone").exists()


def test_replaced_database_is_opened_again(here: Lab, tmp_path: Path) -> None:
    queue = stoker.Queue(tmp_path / "q")
    held = queue.submit("true", hold=True)
    assert held.state == "held"
    path = tmp_path / "q" / "queue.db"
    thread_queue(held._settings).db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(path, tmp_path / "copy.db")
    os.replace(tmp_path / "copy.db", path)  # as a repair does
    before = thread_queue(held._settings)
    here.ok("cancel", str(held.id), STOKER_STATE_DIR=str(tmp_path / "q"))
    assert held.state == "cancelled"
    assert thread_queue(held._settings) is before
