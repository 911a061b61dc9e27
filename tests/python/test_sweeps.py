"""Sweeps in Python: commands, functions, adaptive search, early stopping."""

from __future__ import annotations

from pathlib import Path

import pytest

import stoker
from stoker.errors import NotFound, UsageError
from stoker.python.api import Queue, job
from tests.lab import Lab
from tests.python import job_functions


def test_sweep_of_a_command_has_one_row_per_trial(here: Lab) -> None:
    swept = stoker.sweep(
        "echo stoker: loss={lr}", {"lr": [0.5, 0.25]}, name="mine", metric="loss", gpus=0
    )
    assert swept.wait()
    assert [(row["trial"], row["lr"], row["loss"]) for row in swept.results()] == [
        (1, 0.5, 0.5), (2, 0.25, 0.25),
    ]  # fmt: skip
    best = swept.best()
    assert best is not None
    assert (best["trial"], best["loss"]) == (2, 0.25)
    assert swept.results(where="lr > 0.3")[0]["lr"] == 0.5
    assert [row["lr"] for row in swept.results(sort="loss")] == [0.25, 0.5]
    assert repr(swept) == "<sweep mine: 2 done>"
    assert swept._repr_html_().count("<tr") == 3


def test_function_trial_takes_parameters_and_returns_the_metric(here: Lab) -> None:
    swept = job_functions.score.sweep({"x": [1, 2, 3], "y": 10}, metric="value:min", name="fn")
    assert swept.wait()
    assert [row["value"] for row in swept.results()] == [11, 12, 13]
    assert [one.result() for one in swept.jobs()] == [11, 12, 13]


def test_repeated_function_sweep_runs_only_new_points(here: Lab) -> None:
    first = job_functions.score.sweep({"x": [1, 2], "y": 0})
    assert first.wait()
    again = job_functions.score.sweep({"x": [1, 2, 3], "y": 0})
    assert again.name == first.name
    assert again.wait()
    assert again.counts == {"done": 3}
    assert len(Queue().jobs("all")) == 3


def test_function_sweep_is_shown_by_its_name(here: Lab) -> None:
    job_functions.score.sweep({"x": [1]}, name="fn")
    stoker.sweep(job(lambda x: x, gpus=0), {"x": [1]}, name="anonymous")
    assert "  command   tests.python.job_functions.score(...)\n" in here.ok("sweep", "show", "fn")
    listed = here.ok("sweep", "ls")
    assert "stoker.functions.call" not in listed
    assert "job_functions.score(...)" in listed and "<lambda>(...)" in listed


def test_returned_dict_becomes_columns(here: Lab) -> None:
    swept = stoker.sweep(job(job_functions.report, gpus=0), {"x": "range(2)"})
    assert swept.wait()
    rows = swept.results()
    assert [(row["square"], row["note"]) for row in rows] == [(0, "of 0"), (1, "of 1")]


def test_logged_metric_overrides_the_returned_value(here: Lab) -> None:
    swept = job_functions.log_and_return.sweep({"x": [1, 2]}, metric="loss")
    assert swept.wait()
    assert [(row["loss"], row["other"]) for row in swept.results()] == [(0.1, "x"), (0.2, "x")]
    numbers = job_functions.log_and_return.sweep(
        {"x": [1], "as_number": True}, metric="loss", name="n"
    )
    assert numbers.wait()
    assert [row["loss"] for row in numbers.results()] == [0.1]


def test_gpu_task_scheduler_configuration_is_a_union_of_grids(here: Lab) -> None:
    config = {
        "scheduler_config": {"gpu": ["0"]},
        "global_config": {"y": 5},
        "test_config": [{"x": [1, 2]}, {"x": [7]}],
    }
    swept = job_functions.score.sweep(config)
    assert swept.wait()
    assert [row["result"] for row in swept.results()] == [6, 7, 12]


def test_list_of_mappings_is_a_union_of_grids(here: Lab) -> None:
    swept = stoker.sweep(["echo", "{x}"], [{"x": [1, 2]}, {"x": [2, 3]}], gpus=0, hold=True)
    assert [row["x"] for row in swept.results()] == [1, 2, 3]


def test_results_convert_to_pandas_and_polars(here: Lab) -> None:
    swept = stoker.sweep("echo stoker: v={x}", {"x": [1, 2]}, gpus=0)
    assert swept.wait()
    assert list(swept.to_pandas()["v"]) == [1, 2]
    assert swept.to_polars()["x"].to_list() == [1, 2]


def test_curve_has_every_step(here: Lab) -> None:
    swept = stoker.sweep(job_functions.train, {"lr": [0.1]}, metric="loss")
    assert swept.wait()
    assert swept.curve(1, "loss") == [(0, 1.0), (1, 0.5), (2, 0.25)]
    with pytest.raises(UsageError, match="no trial 9"):
        swept.curve(9, "loss")


def test_search_beats_random_sampling_with_equal_trials(here: Lab) -> None:
    """Both are seeded, so the result is deterministic."""
    space = {"x": "interval(-10, 10)", "y": "interval(-10, 10)"}
    best = {}
    for method in ("random", "tpe"):
        swept = stoker.sweep(
            job_functions.bowl, space, method=method, trials=40, seed=1, metric="loss", name=method,
            max_parallel=1,
        )  # fmt: skip
        assert swept.wait()
        assert swept.counts == {"done": 40}
        row = swept.best()
        assert row is not None
        best[method] = row["loss"]
    assert best["tpe"] < best["random"] / 2


def test_search_continues_after_crashes_of_driver_daemon_and_runner(here: Lab) -> None:
    swept = stoker.sweep(
        job_functions.bowl, {"x": "interval(-1, 1)", "y": "interval(-1, 1)"}, method="tpe",
        trials=12, seed=3, metric="loss", max_parallel=2,
    )  # fmt: skip
    for enough in (3, 6):
        here.wait_until(lambda enough=enough: swept.counts.get("done", 0) >= enough)  # type: ignore[misc]
        here.kill_helper("sweep_driver")
        here.kill_daemon()
    assert swept.wait()
    counts = swept.counts
    assert sum(counts.values()) == 12
    assert counts.get("done", 0) == 12
    assert len({(row["x"], row["y"]) for row in swept.results()}) == 12


def test_bad_trial_is_stopped_early(here: Lab) -> None:
    """The first trials are good; the last is bad at every step and checks should_stop()."""
    swept = stoker.sweep(
        job_functions.patient, {"offset": [0, 0.1, 0.2, 100]}, metric="loss", max_parallel=1,
        early_stop={"kind": "median", "min_trials": 2, "after_step": 1}, gpus=0,
    )  # fmt: skip
    assert swept.wait()
    steps = {row["offset"]: row["steps"] for row in swept.results()}
    assert steps[0] == 5
    assert steps[100] == "stopped"
    stopped = [row["stopped"] for row in swept.results()]
    assert (stopped[0], stopped[3]) == (None, "early")


def test_sweep_is_found_by_name_stopped_and_resumed(here: Lab) -> None:
    stoker.sweep("true {x}", {"x": [1, 2]}, name="held", hold=True, gpus=0)
    swept = Queue().find_sweep("held")
    swept.stop()
    assert (swept.counts, swept.stopped) == ({"cancelled": 2}, "stopped by the user")
    assert swept.resume().counts == {"held": 2}
    assert [one.name for one in Queue().sweeps()] == ["held"]
    with pytest.raises(NotFound):
        Queue().find_sweep("nothing")


def test_invalid_sweep_is_refused_before_anything_is_queued(here: Lab) -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        job_functions.score.sweep({"y": [1]})
    with pytest.raises(TypeError, match="unexpected keyword argument 'yy'; did you mean 'y'"):
        job_functions.score.sweep({"yy": [1]})
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        job_functions.score.sweep({"x": [1], "z": [1]})
    with pytest.raises(UsageError, match="method"):
        stoker.sweep("echo {x}", {"x": [1]}, method="gird")
    with pytest.raises(UsageError, match="does not refer to a parameter"):
        stoker.sweep("echo {x}", {"y": [1]})
    with pytest.raises(UsageError, match="option"):
        stoker.sweep("echo {x}", {"x": [1]}, gpsu=1)
    with pytest.raises(UsageError, match="1,000,000,000,000"):
        stoker.sweep("echo {a}{b}", {"a": "range(1000000)", "b": "range(1000000)"})
    assert Queue().jobs("all") == []
    assert Queue().sweeps() == []


def test_search_without_optuna_names_the_missing_package(
    here: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "optuna.py").write_text("raise ModuleNotFoundError('No', name='optuna')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    swept = stoker.sweep(
        "echo {x}", {"x": "interval(0, 1)"}, method="tpe", trials=3, metric="v:min", gpus=0
    )
    assert swept.wait()
    assert "pip install 'stoker[search]'" in (swept.stopped or "")
