"""CPython's own tests of executors, run with `stoker.Executor`.

The tests come with the interpreter (`test.test_concurrent_futures`) and are imported, not copied.
Debian and Ubuntu put them into a package of their own: `libpython3-testsuite`.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.errors import UsageError
from stoker.python.executor import Executor
from stoker.python.job_errors import JobFailed
from tests import system_packages
from tests.lab import Lab, wait_until
from tests.python.event import Event

_POOL = "looks at the processes and threads of a pool, and jobs have neither in this process"
_EXIT = "the queue outlives the process: nothing is waited for at exit (docs/python.md)"
_OUTPUT = f"its script names an executor of concurrent.futures; {_EXIT}"

# Tests that do not apply, and why.
NOT_APPLICABLE = {
    "test_interpreter_shutdown": _OUTPUT,
    "test_submit_after_interpreter_shutdown": _OUTPUT,
    "test_hang_gh83386": _OUTPUT,
    "test_processes_terminate": _POOL,
    "test_context_manager_shutdown": _POOL,
    "test_del_shutdown": _POOL,
    "test_shutdown_no_wait": _POOL,
    "test_max_workers_too_large": "about Windows",
    "test_killed_child": f"a killed job breaks no other; {_POOL}",
    "test_broken_process_pool_traceback": _POOL,
    "test_traceback": "compares with a private class of concurrent.futures; see test_functions.py",
    "test_ressources_gced_in_workers": "the argument would have to outlive its manager; " + _POOL,
    "test_saturation": _POOL,
    "test_idle_process_reuse_one": _POOL,
    "test_idle_process_reuse_multiple": _POOL,
    "test_max_tasks_per_child": "every call has a process of its own: max_tasks_per_child is 1",
    "test_max_tasks_per_child_defaults_to_spawn_context": "there is no max_tasks_per_child",
    "test_max_tasks_early_shutdown": "there is no max_tasks_per_child",
    "test_max_tasks_per_child_pending_tasks_gh115634": "there is no max_tasks_per_child",
    "test_shutdown_no_wait_max_tasks_gh119592": "there is no max_tasks_per_child",
    "test_gc_during_max_tasks_worker_exit_gh152967": "there is no max_tasks_per_child",
    "test_force_shutdown_during_max_tasks_worker_exit": "there is no max_tasks_per_child",
    "test_failed_worker_replacement_breaks_pool": "there is no max_tasks_per_child",
    "test_python_finalization_error": "replaces the threads of a pool by a fake",
    "test_process_pool_executor_terminate_workers": _POOL,
    "test_process_pool_executor_terminate_workers_dead_workers": _POOL,
    "test_process_pool_executor_terminate_workers_not_started_yet": _POOL,
    "test_process_pool_executor_terminate_workers_stops_pool": _POOL,
    "test_process_pool_executor_kill_workers": _POOL,
    "test_process_pool_executor_kill_workers_dead_workers": _POOL,
    "test_process_pool_executor_kill_workers_not_started_yet": _POOL,
    "test_process_pool_executor_kill_workers_stops_pool": _POOL,
    "test_terminate_workers": _POOL,
    "test_kill_workers": _POOL,
    "test_force_shutdown_workers": _POOL,
    "test_force_shutdown_workers_dead_workers": _POOL,
    "test_force_shutdown_workers_not_started_yet": _POOL,
    "test_force_shutdown_workers_stops_pool": _POOL,
    "test_force_shutdown_workers_invalid_op": _POOL,
    "test_map_buffersize_on_infinite_iterable": "all items enter the queue at once",
    "test_map_buffersize_on_multiple_infinite_iterables": "all items enter the queue at once",
    "test_map_buffersize_when_buffer_is_full": "all items enter the queue at once",
    "test_map_buffersize_when_error": "all items enter the queue at once",
    "test_map_buffersize_without_iterable": "all items enter the queue at once",
    "test_shutdown_deadlock_pickle": "arguments are pickled by submit itself, which raises",
    "test_gh105829_should_not_deadlock_if_wakeup_pipe_full": _POOL,
    "test_crash_big_data": "expects BrokenProcessPool; see the tests of crashes here",
    "test_shutdown_deadlock": "expects BrokenProcessPool; see the tests of crashes here",
}


def _cpython(*modules: str) -> Any:
    """Import the first of these modules that exists."""
    for name in modules:
        try:
            return importlib.import_module(f"test.{name}")
        except ImportError:
            continue
    return None


# A Python built without its tests uses those of Debian's package, here and in jobs.
_FOLDER = system_packages.cpython_tests()
_ADD_FOLDER = f"import test\ntest.__path__.append({_FOLDER!r})\n"
_PACKAGE = "test_concurrent_futures"
if _FOLDER is not None:
    exec(_ADD_FOLDER)
_util = _cpython(f"{_PACKAGE}.util", _PACKAGE)
_has_tests = hasattr(_util, "BaseTestCase")
if not _has_tests:
    pytest.skip(
        "needs CPython's own tests (Debian and Ubuntu: libpython3-testsuite)",
        allow_module_level=True,
    )
_wait = _cpython(f"{_PACKAGE}.test_wait", _PACKAGE)
_completed = _cpython(f"{_PACKAGE}.test_as_completed", _PACKAGE)
_pools = _cpython(f"{_PACKAGE}.test_process_pool", _PACKAGE)
_shutdown = _cpython(f"{_PACKAGE}.test_shutdown", _PACKAGE)
_deadlock = _cpython(f"{_PACKAGE}.test_deadlock", _PACKAGE)

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # from CPython's test helpers
]


class _Jobs(Executor):
    """An executor of jobs without a GPU; it ignores the multiprocessing context."""

    def __init__(self, max_workers: int | None = None, mp_context: object = None) -> None:
        super().__init__(max_workers, gpus=0)


@pytest.fixture(scope="class")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One daemon for all tests of a class."""
    folder = tmp_path_factory.mktemp("queue")
    lab = Lab(folder, devices=0, STOKER_CPU_SLOTS="8")
    with pytest.MonkeyPatch.context() as patch:
        for key in list(os.environ):
            if key.startswith("STOKER_"):
                patch.delenv(key)
        for key, value in lab.env.items():
            if key.startswith("STOKER_") or key == "SHELL":
                patch.setenv(key, value)
        (folder / "sitecustomize.py").write_text(_ADD_FOLDER if _FOLDER is not None else "")
        patch.setenv("PYTHONPATH", str(folder))
        lab.ok("daemon", "start")
        yield
    lab.close()


def _applied(name: str, tests: type, *, also: dict[str, Any] | None = None) -> type:
    """Make a class that pytest collects from CPython's tests of one kind."""
    members: dict[str, Any] = {
        "executor_type": _Jobs,
        "create_event": lambda _: Event(),
        "__module__": __name__,
        **(also or {}),
    }
    for test in dir(tests):
        if test in NOT_APPLICABLE:
            members[test] = None
    made = type(name, (tests, _util.ExecutorMixin, _util.BaseTestCase), members)
    return pytest.mark.usefixtures("queue")(made)


def _check_crash(
    self: Any, error: object, function: Any, *args: object, ignore_stderr: bool = False
) -> None:
    """An error in a call is an exception of its own future only."""
    with self.assertRaises((JobFailed, UsageError, RuntimeError, TypeError, ImportError, ValueError,
                            _pickle_error())):  # fmt: skip
        self.executor.submit(function, *args).result()
    self.assertEqual(self.executor.submit(pow, 2, 3).result(), 8)


def _check_cancel_futures(self: Any) -> None:
    """As CPython's test, but calls wait for a file, so a slow machine does not finish most."""
    with tempfile.TemporaryDirectory() as folder:
        script = f"touch {folder}/started; until [ -e {folder}/gate ]; do sleep 0.02; done"
        futures = [self.executor.submit(subprocess.call, ["sh", "-c", script]) for _ in range(50)]
        wait_until(lambda: os.path.exists(f"{folder}/started"))
        self.executor.shutdown(wait=False, cancel_futures=True)
        Path(folder, "gate").touch()
        self.executor.shutdown()
    cancelled = [future for future in futures if future.cancelled()]
    self.assertGreater(len(cancelled), 20)
    others = [future for future in futures if not future.cancelled()]
    self.assertGreater(len(others), 0)
    for future in others:
        self.assertTrue(future.done())
        self.assertEqual(future.result(), 0)


def _pickle_error() -> type[Exception]:
    import pickle

    return pickle.PickleError


TestExecutor = _applied("TestExecutor", _pools.ProcessPoolExecutorTest)
TestShutdown = _applied(
    "TestShutdown",
    _shutdown.ExecutorShutdownTest,
    also={"test_cancel_futures": _check_cancel_futures},
)
TestWait = _applied("TestWait", _wait.WaitTests)
TestAsCompleted = _applied("TestAsCompleted", _completed.AsCompletedTests)
TestDeadlock = _applied(
    "TestDeadlock",
    _deadlock.ExecutorDeadlockTest,
    also={"_check_crash": _check_crash, "_check_error": _check_crash},  # since 3.14
)
