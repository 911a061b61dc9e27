"""The API inside a job, and that it is harmless outside."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from stoker.functions import current_job
from stoker.functions.current_job import current
from stoker.python.api import job, submit
from tests.lab import Lab
from tests.python import job_functions


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in list(os.environ):
        if key.startswith("STOKER_"):
            monkeypatch.delenv(key)


def test_api_is_harmless_outside_a_job(capfd: pytest.CaptureFixture[str]) -> None:
    run = current()
    assert (run.id, run.attempt, run.params, run.sweep, run.gpus, run.deadline) == (
        None, 0, {}, None, (), None,
    )  # fmt: skip
    assert (run.dir, run.checkpoint_dir) == (Path("."), Path("."))
    run.log(loss=0.5, step=1)
    assert run.should_stop() is False
    with pytest.raises(RuntimeError, match="only be called inside a job"):
        run.requeue()
    assert capfd.readouterr() == ("", "")


def _facts() -> dict[str, object]:
    run = current()
    return {
        "id": run.id,
        "attempt": run.attempt,
        "dir": run.dir.is_dir() and str(run.dir),
        "checkpoints": run.checkpoint_dir.is_dir() and str(run.checkpoint_dir),
        "gpus": run.gpus,
    }


def test_current_job_has_the_facts_of_the_job(here: Lab) -> None:
    made = submit(_facts)
    place = f"{here.state_dir}/jobs/0/{made.id}"
    assert made.result() == {
        "id": made.id,
        "attempt": 1,
        "dir": place,
        "checkpoints": f"{place}/checkpoints",
        "gpus": ("0",),
    }


def test_current_job_reads_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_PARAMS", '{"lr": 0.1, "opt": "adam"}')
    monkeypatch.setenv("STOKER_SWEEP", "brave-lion")
    monkeypatch.setenv("STOKER_TRIAL", "12")
    monkeypatch.setenv("STOKER_GPUS", "0,GPU-3")
    monkeypatch.setenv("STOKER_DEADLINE", "1700000000.5")
    monkeypatch.setenv("STOKER_CHECKPOINT_DIR", str(tmp_path / "a" / "b"))
    run = current()
    assert run.params == {"lr": 0.1, "opt": "adam"}
    assert run.trial == 12
    assert (run.sweep, run.gpus, run.deadline) == ("brave-lion", ("0", "GPU-3"), 1700000000.5)
    assert run.checkpoint_dir == tmp_path / "a" / "b" and run.checkpoint_dir.is_dir()
    monkeypatch.setenv("STOKER_PARAMS", "[1]")
    with pytest.raises(ValueError, match="STOKER_PARAMS is not a JSON object"):
        _ = run.params


def test_should_stop_follows_the_monotonic_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit does: a wall clock that is set must not end a job early, or never."""
    monkeypatch.setenv("STOKER_WARN_SECONDS", "60")
    now = time.time()
    for deadline, is_near in ((now + 4000.5, False), (now + 30.5, True)):
        monkeypatch.setenv("STOKER_DEADLINE", str(deadline))
        assert current().should_stop() is is_near
        for jump in (-7200, 30 * 365 * 86400):
            with monkeypatch.context() as patch:
                patch.setattr("time.time", lambda jump=jump: now + jump)
                assert current().should_stop() is is_near


class Scalar:
    """A scalar like those of NumPy and PyTorch."""

    def __init__(self, *values: float) -> None:
        self.values = values

    def item(self) -> float:
        if len(self.values) != 1:
            raise ValueError("only one element tensors can be converted")
        return self.values[0]


def test_metrics_are_complete_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "metrics.jsonl"
    monkeypatch.setenv("STOKER_METRICS", str(path))
    monkeypatch.setenv("STOKER_ATTEMPT", "2")
    current_job.log(loss=Scalar(0.25), note="warm", ok=True, step=3)
    current().log(loss=float("nan"), **{"val/acc": 1})
    first, second = map(json.loads, path.read_text().splitlines())
    assert first.pop("at") > 0
    assert first == {"attempt": 2, "step": 3, "loss": 0.25, "note": "warm", "ok": True}
    assert math.isnan(second["loss"]) and second["val/acc"] == 1 and "step" not in second


def test_metrics_can_be_given_as_a_dict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metrics.jsonl"
    monkeypatch.setenv("STOKER_METRICS", str(path))
    current_job.log({"loss": 0.5, "val/acc": 1}, step=3, lr=0.1)
    current_job.log({"loss": 0.4, "step": 4})
    line, second = map(json.loads, path.read_text().splitlines())
    assert (second["step"], second["loss"]) == (4, 0.4)
    assert (line["step"], line["loss"], line["val/acc"], line["lr"]) == (3, 0.5, 1, 0.1)
    untyped: Any = current_job.log
    with pytest.raises(TypeError, match="a dict or keywords, not 3"):
        untyped(3)
    with pytest.raises(TypeError, match="'1' is not a valid metric name"):
        untyped({1: 2})


def test_numpy_scalars_are_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numpy = pytest.importorskip("numpy")
    path = tmp_path / "metrics.jsonl"
    monkeypatch.setenv("STOKER_METRICS", str(path))
    current_job.log(a=numpy.float32(0.5), b=numpy.int64(3), c=numpy.array(2.0), step=numpy.int32(1))
    line = json.loads(path.read_text())
    assert (line["a"], line["b"], line["c"], line["step"]) == (0.5, 3, 2.0, 1)


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ({"loss": [1]}, "loss has type list"),
        ({"loss": None}, "loss has type NoneType"),
        ({"loss": Scalar(1, 2)}, "loss is not a single value: only one element"),
        ({"at": 1}, "'at' is not a valid metric name"),
        ({"attempt": 1}, "'attempt' is not a valid metric name"),
        ({"": 1}, "'' is not a valid metric name"),
        ({"a b": 1}, "'a b' is not a valid metric name"),
        ({"step": "ten"}, "step is the string 'ten', not a number"),
    ],
)
def test_invalid_metric_is_refused_with_its_name(metrics: dict[str, object], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        current_job.log(**metrics)  # type: ignore[arg-type]


def test_full_disk_loses_metrics_but_raises_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(current_job, "_has_warned_about_disk", False)
    monkeypatch.setenv("STOKER_METRICS", "/dev/full")
    current_job.log(loss=1)
    current_job.log(loss=2)
    errors = capfd.readouterr().err
    assert errors == "stoker: cannot write metrics: /dev/full: No space left on device\n"


def test_stop_file_requests_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "stop"
    monkeypatch.setenv("STOKER_STOP_FILE", str(path))
    assert current_job.should_stop() is False
    path.touch()
    assert current_job.should_stop() is True


@pytest.mark.parametrize(
    ("deadline", "warn", "stops"),
    [("1", None, False), ("1", "0", False), ("1", "60", True), ("9e9", "60", False),
     ("9e9", "9e9", True), (None, "60", False), ("soon", "60", False)],
)  # fmt: skip
def test_approaching_time_limit_requests_a_stop(
    deadline: str | None, warn: str | None, stops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if deadline is not None:
        monkeypatch.setenv("STOKER_DEADLINE", deadline)
    if warn is not None:
        monkeypatch.setenv("STOKER_WARN_SECONDS", warn)
    assert current_job.should_stop() is stops


def test_warning_signal_requests_a_stop() -> None:
    """Runs in its own process, because the handler cannot be removed."""
    program = (
        "import os, signal, stoker\n"
        "before = stoker.should_stop()\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\n"
        "print(before, stoker.should_stop())\n"
    )
    env = {**os.environ, "STOKER_WARN_SIGNAL": "10"}
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "False True\n")
    own = "import signal\nsignal.signal(signal.SIGUSR1, lambda *_: print('own'))\n" + program
    done = subprocess.run([*words[:2], own], env=env, capture_output=True, text=True)
    assert done.stdout == "own\nFalse False\n"


def test_warned_function_saves_and_resumes(here: Lab) -> None:
    """As in docs/python.md: only should_stop() and requeue()."""
    made = job(job_functions.save_when_warned, time_limit=60, signal="USR1@59", gpus=0).submit()
    assert made.result() == 2


def test_warned_trial_saves_and_resumes(here: Lab) -> None:
    swept = job(job_functions.save_when_warned, time_limit=60, signal="USR1@59", gpus=0).sweep(
        {"x": [1]}
    )
    assert swept.wait()
    assert [one.result() for one in swept.jobs()] == [2]


def test_requeue_writes_a_file_and_exits_with_75(tmp_path: Path) -> None:
    mark = tmp_path / "new" / "requeue"
    done = subprocess.run(
        [sys.executable, "-c", "import stoker\ntry: stoker.requeue()\nfinally: print(1)"],
        env={**os.environ, "STOKER_JOB_ID": "7", "STOKER_ATTEMPT": "3",
             "STOKER_REQUEUE_FILE": str(mark)},
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (75, "1\n", "")
    assert mark.read_text() == "3\n"


def test_requeued_job_runs_again_and_keeps_its_metrics(here: Lab) -> None:
    made = submit(job_functions.requeue_once)
    assert made.result() == 2
    metrics = next(here.state_dir.glob("jobs/0/*metrics*"))
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [(line["attempt"], line["seen"]) for line in lines] == [(1, 1), (2, 2)]


def test_requeue_works_in_a_function_job(tmp_path: Path) -> None:
    """A function job exits with the code and writes no result."""
    import hashlib

    from stoker.functions import call, payload, payload_files

    folder = payload_files.new_folder(str(tmp_path))
    data = payload.pack(current_job.requeue, (), {})
    payload_files.write(folder, payload_files.CALL, [data])
    sha256 = hashlib.sha256(data).hexdigest()
    words = call.words(sys.executable, "requeue", folder, sha256, [(0, len(data))])
    output = tmp_path / "output"
    env = {**os.environ, "STOKER_JOB_ID": "7", "STOKER_OUTPUT_DIR": str(output)}
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (75, "")
    assert (output / ".requeue").exists()
    assert os.listdir(folder) == ["call"]


# -- cost of imports -----------------------------------------------------------------------------

HEAVY = {"torch", "numpy", "asyncio", "concurrent.futures", "multiprocessing", "cloudpickle"}


@pytest.mark.parametrize(
    ("module", "never"),
    [
        ("functions.current_job", {*HEAVY, "json", "pathlib", "typing", "sqlite3", "threading"}),
        ("functions.call", {*HEAVY, "sqlite3", "socket", "typing"}),
        ("python.api", {*HEAVY, "sqlite3", "socket", "threading"}),
        ("python.job", {*HEAVY, "sqlite3", "socket", "threading"}),
        ("python.executor", HEAVY - {"concurrent.futures"}),
    ],
)
def test_import_loads_few_modules(module: str, never: set[str]) -> None:
    text = f"import stoker.{module}, sys; print(*sys.modules)"
    words = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append({_src()!r}); {text}"]
    loaded = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    assert never & set(loaded) == set()


def _src() -> str:
    import stoker

    return str(Path(stoker.__file__).parents[1])
