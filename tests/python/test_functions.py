"""Python functions as jobs, with a real daemon."""

from __future__ import annotations

import functools
import importlib
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoker.errors import UsageError
from stoker.python.api import JobFunction, Queue, job, submit
from stoker.python.job_errors import JobFailed, RemoteTraceback
from tests.lab import Lab
from tests.python import job_functions


def run_script(lab: Lab, text: str, *argv: str, cwd: Path | None = None) -> str:
    """Run a user's script in its own process and return its output."""
    path = lab.folder / "script.py"
    path.write_text(textwrap.dedent(text))
    done = subprocess.run(
        [sys.executable, str(path), *argv],
        env=lab.env,
        cwd=cwd or lab.folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_return_values_are_loaded(here: Lab) -> None:
    jobs: list[Any] = [
        submit(job_functions.add, 1, b=2),
        submit(job_functions.later, 4),
        submit(job_functions.Model(3).times, 5),
        submit(functools.partial(job_functions.add, 1), 1),
        submit(max, [3, 9, 4]),
    ]
    assert [job.result() for job in jobs] == [3, 8, 15, 2, 9]
    assert [job.name for job in jobs] == ["add", "later", "times", "add", "max"]


def test_exception_is_raised_with_the_traceback_of_the_job(here: Lab) -> None:
    failed = submit(job_functions.fail, "no data")
    with pytest.raises(ValueError, match=r"^no data$") as caught:
        failed.result()
    cause = caught.value.__cause__
    assert isinstance(cause, RemoteTraceback)
    lines = cause.text.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert 'job_functions.py", line ' in lines[1] and lines[1].endswith(
        ", in fail"
    )  # no frames of Stoker
    assert lines[-1] == "ValueError: no data"
    assert failed.log() == cause.text  # `stoker log` shows the same
    assert (failed.state, failed.exit_code) == ("failed", 1)
    assert repr(failed.exception()) == "ValueError('no data')"


def test_exception_that_cannot_be_pickled_is_raised_as_text(here: Lab) -> None:
    with pytest.raises(JobFailed, match=r"job 1 failed: Awkward: 1 and 2") as caught:
        submit(job_functions.fail_awkwardly).result()
    assert "in fail_awkwardly" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("function", "kind"), [(job_functions.unsendable, "lock"), (job_functions.numbers, "generator")]
)
def test_result_that_cannot_be_pickled_fails_with_its_type(
    here: Lab, function: Callable[[], object], kind: str
) -> None:
    failed = submit(function)
    with pytest.raises(TypeError, match=f"has type `{kind}` and cannot be pickled"):
        failed.result()
    assert failed.state == "failed"
    assert "hint: return numbers" in failed.log()


def test_sys_exit_keeps_its_code(here: Lab) -> None:
    assert submit(job_functions.leave, 0).result() is None
    with pytest.raises(JobFailed) as caught:
        submit(job_functions.leave, 7).result()
    assert (caught.value.exit_code, caught.value.words) == (7, "exit 7")


def test_value_of_a_crashed_process_is_ignored(here: Lab) -> None:
    for function, number in ((job_functions.fork_and_die, 9), (job_functions.die_late, 11)):
        with pytest.raises(JobFailed) as caught:
            submit(function).result()
        assert caught.value.signal == number
    with pytest.raises(JobFailed, match="job 3 done: it wrote no result"):
        submit(job_functions.vanish).result()
    made = sorted(path.name for path in (here.state_dir / "calls").glob("*/result-*"))
    assert made == ["result-2"]  # a forked child writes none


def test_only_the_latest_attempt_counts(here: Lab, tmp_path: Path) -> None:
    better = job(job_functions.fail_once, retries=1).submit(str(tmp_path / "a"))
    worse = job(job_functions.fail_then_die, retries=1).submit(str(tmp_path / "b"))
    assert better.result() == 2
    with pytest.raises(JobFailed) as caught:  # not the ValueError of the first attempt
        worse.result()
    assert caught.value.signal == 9


def test_rerun_has_its_own_result(here: Lab, tmp_path: Path) -> None:
    first = submit(job_functions.fail_once, str(tmp_path / "mark"))
    assert isinstance(first.exception(), ValueError)
    again = first.rerun()
    assert again.result() == 2
    assert isinstance(first.exception(), ValueError)


def test_result_survives_a_crash_of_the_daemon(here: Lab, gate: Callable[..., str]) -> None:
    path = gate()
    waiting = submit(job_functions.pass_gate, path, "safe")
    here.wait_until(waiting.running)
    here.kill_daemon()
    Path(path).write_text("go")
    assert waiting.result() == "safe"


# -- scripts -------------------------------------------------------------------------------------


def test_lambdas_closures_and_script_classes_are_pickled_by_value(here: Lab) -> None:
    out = run_script(
        here,
        """
        from stoker.python.api import job, submit

        class Score:
            def __init__(self, value):
                self.value = value

        FACTOR = 3

        @job(gpus=0)
        def fit(score):
            return Score(FACTOR * score.value)

        def make(n):
            return lambda x: x + n

        if __name__ == "__main__":
            print(submit(make(2), 40).result())
            back = fit.submit(Score(5)).result()
            print(back.value, type(back) is Score, fit(Score(1)).value)
        """,
    )
    assert out == "42\n15 True 3\n"


def test_job_imports_a_module_beside_the_script(here: Lab, tmp_path: Path) -> None:
    (here.folder / "helpers.py").write_text("def where():\n    return __name__, __file__\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    out = run_script(
        here,
        """
        import sys
        import helpers
        from stoker.python.api import job
        print(*job(helpers.where, cwd=sys.argv[1]).submit().result())
        """,
        str(elsewhere),
        cwd=elsewhere,
    )
    assert out == f"helpers {here.folder / 'helpers.py'}\n"


def test_job_imports_a_module_of_the_current_folder(here: Lab) -> None:
    (here.folder / "helpers.py").write_text("def name():\n    return __name__\n")
    text = (
        "import helpers; from stoker.python.api import submit; print(submit(helpers.name).result())"
    )
    done = subprocess.run(
        [sys.executable, "-c", text], env=here.env, cwd=here.folder, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("helpers\n", "")


def test_user_file_does_not_hide_a_standard_module(here: Lab) -> None:
    """A json.py or pickle.py in the job's folder must not hide the standard module."""
    for name in ("pickle", "hashlib", "stat"):
        (here.folder / f"{name}.py").write_text("raise SystemExit('the wrong file')\n")
    assert job(job_functions.add, cwd=here.folder).submit(1).result() == 2


def test_error_about_a_missing_module_has_a_hint(
    here: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "vanishing.py"
    path.write_text("def f():\n    return 1\n")
    held = job(importlib.import_module("vanishing").f, hold=True).submit()
    path.unlink()
    held.release()
    with pytest.raises(ImportError) as caught:
        held.result()
    text = str(caught.value)
    assert text.startswith("cannot import `vanishing` in the job: ModuleNotFoundError")
    assert f"\nsys.path:\n  {tmp_path}\n" in text
    assert "\nhint: " in text
    assert text in held.log()
    assert held.info()["cause"] == "missing_module"


def test_module_that_fails_at_import_shows_where(
    here: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "brittle.py"
    path.write_text("def f():\n    return 1\n")
    held = job(importlib.import_module("brittle").f, hold=True).submit()
    renamed = job(importlib.import_module("brittle").f, hold=True).submit()
    path.write_text("print(1 / 0)\n")
    held.release()
    with pytest.raises(ImportError, match="cannot import `brittle` in the job: ZeroDivisionError"):
        held.result()
    assert f'File "{path}", line 1, in <module>' in held.log()
    path.write_text("def g():\n    return 1\n")
    renamed.release()
    with pytest.raises(ImportError, match=r"the module `brittle` has no `f` any more"):
        renamed.result()


def test_module_outside_sys_path_is_pickled_by_value(here: Lab, tmp_path: Path) -> None:
    """Loaded like pytest and plugin systems do: another process cannot import the name."""
    path = tmp_path / "loaded.py"
    path.write_text("BASE = 40\n\ndef f(x):\n    return g(x) + BASE\n\ndef g(x):\n    return x\n")
    spec = importlib.util.spec_from_file_location("loaded", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["loaded"] = module
    try:
        spec.loader.exec_module(module)
        assert submit(module.f, 2).result() == 42
    finally:
        del sys.modules["loaded"]


# -- errors at submit ------------------------------------------------------------------------------


def test_argument_that_cannot_be_pickled_is_named(here: Lab) -> None:
    untyped: Any = submit
    with pytest.raises(
        UsageError, match=r"the argument `b` \(a lock\) of `tests.python.job_functions.add`"
    ):
        untyped(job_functions.add, 1, threading.Lock())
    with pytest.raises(UsageError, match=r"the argument `b` \(a generator\)"):
        untyped(job_functions.add, 1, b=job_functions.numbers())
    assert Queue().jobs("all") == []


def test_function_that_cannot_be_pickled_is_named(here: Lab) -> None:
    lock = threading.Lock()
    with pytest.raises(UsageError, match=r"the function `.*<lambda>` cannot be pickled"):
        submit(lambda: lock.locked())
    assert Queue().jobs("all") == []


def test_wrong_arguments_raise_type_error_at_submit(here: Lab) -> None:
    untyped: Any = submit  # a type checker would report all of these
    with pytest.raises(TypeError, match=r"job_functions.add\(\): missing a required argument: 'a'"):
        untyped(job_functions.add)
    with pytest.raises(TypeError, match=r"'gpus'; set job options with @stoker.job\(gpus=1\) or"):
        untyped(job_functions.add, 1, gpus=1)
    with pytest.raises(TypeError, match="too many positional arguments"):
        job_functions.double.map([1], [2])
    assert Queue().jobs("all") == []


def test_method_cannot_be_a_job(here: Lab) -> None:
    with pytest.raises(UsageError, match=r"Trainer.fit` is a method, but @job works only"):

        class Trainer:
            @job
            def fit(self) -> None: ...

    with pytest.raises(UsageError, match="is not a function"):

        class Other:
            @job
            @staticmethod
            def fit() -> None: ...


# -- the decorator ---------------------------------------------------------------------------------


def test_job_function_can_still_be_called() -> None:
    import inspect
    import pickle

    assert job_functions.double(4) == 8
    assert (job_functions.double.__name__, job_functions.double.__doc__) == (
        "double",
        "Return twice the number.",
    )
    assert str(inspect.signature(job_functions.double)) == "(x: 'int') -> 'int'"
    assert pickle.loads(pickle.dumps(job_functions.double)) is job_functions.double
    assert (
        repr(job_functions.double)
        == "<job function tests.python.job_functions.double(gpus=0, name='doubler')>"
    )


def test_map_submits_one_batch_in_order(here: Lab) -> None:
    jobs = job_functions.double.map(range(4))
    assert [job.result() for job in jobs] == [0, 2, 4, 6]
    facts = [job.info() for job in jobs]
    assert [fact["batch_index"] for fact in facts] == [0, 1, 2, 3]
    assert {fact["name"] for fact in facts} == {"doubler"}
    assert len(list((here.state_dir / "calls").iterdir())) == 1
    assert [job.result() for job in Queue().map(job_functions.add, [1, 2], [10, 20])] == [11, 22]
    assert [job.result() for job in Queue().map(job_functions.add, [1, 2], b=5)] == [6, 7]
    assert job_functions.double.map([]) == []


def test_options_returns_a_changed_copy(here: Lab) -> None:
    other: JobFunction[[int], int] = job_functions.double.options(name="other", priority=3)
    facts = other.submit(1).info()
    assert (facts["name"], facts["priority"], facts["gpus"]) == ("other", 3, 0)
    assert job_functions.double.submit(1).info()["name"] == "doubler"


def test_job_functions_can_call_each_other(here: Lab) -> None:
    assert job_functions.twice_as_job.submit(4).result() == 8


def test_command_profiles_distinguish_functions_but_not_calls(here: Lab) -> None:
    from stoker.engine.profiles.command_profile import profile_key

    made = [
        submit(job_functions.add, 1),
        submit(job_functions.add, 2),
        submit(job_functions.shout, "a"),
    ]
    keys = [profile_key(tuple(job.info()["argv"]), False) for job in made]
    assert keys[0] == keys[1] != keys[2]


def test_dedupe_key_returns_the_first_job_and_leaves_no_files(here: Lab) -> None:
    once = job(job_functions.add, dedupe="nightly")
    first = once.submit(1)
    assert once.submit(5) == first
    assert first.result() == 2
    assert len(list((here.state_dir / "calls").iterdir())) == 1
    with pytest.raises(UsageError, match="`dedupe` is a key for a single job"):
        once.map([1, 2])


def test_refused_call_leaves_no_files(here: Lab) -> None:
    from stoker.errors import Impossible, NotFound

    with pytest.raises(Impossible, match="requests 9 GPUs"):
        job(job_functions.add, gpus=9).submit(1)
    with pytest.raises(NotFound, match="no job 77 to wait for"):
        job(job_functions.add, after=77).submit(1)
    assert not list((here.state_dir / "calls").iterdir())


def test_function_job_imports_few_modules(here: Lab) -> None:
    loaded = submit(job_functions.modules).result()
    assert not {"asyncio", "sqlite3", "concurrent.futures", "cloudpickle", "pytest"} & set(loaded)


def test_function_job_is_shown_as_its_call(here: Lab) -> None:
    made = job(job_functions.add, hold=True).submit(1, b=3)
    hidden = job(str.upper, hold=True).submit("secret")
    listed = here.ok("ls")
    assert "tests.python.job_functions.add(1, b=3)\n" in listed
    assert "str.upper(...)\n" in listed and "secret" not in listed
    assert "stoker.functions.call" not in listed + here.ok("show", str(made.id)) + here.ok()
    assert made.release() and hidden.release()
    assert (made.result(), hidden.result()) == (4, "SECRET")
