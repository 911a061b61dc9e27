"""Options of `stoker submit` as Python values."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from stoker.client.submit.job_options import NAMES
from stoker.client.submit.parsed_options import read_options
from stoker.engine.model import Dependency
from stoker.errors import Impossible, UsageError
from stoker.python.api import Queue, job, submit, sweep
from stoker.python.executor import Executor
from stoker.python.options import Options
from tests.lab import Lab
from tests.python import job_functions


def test_preemptible_jobs_are_restartable(here: Lab) -> None:
    facts = submit("true", preemptible=True, no_bind=True, signal="USR1@90", hold=True).info()
    assert (facts["preemptible"], facts["restartable"], facts["no_bind"]) == (True, True, True)


def test_options_mean_the_same_as_on_the_command_line(here: Lab, tmp_path: Path) -> None:
    first = submit("true", hold=True)
    made = submit(
        "true", gpus=2, exclusive=True, name="n", cwd=tmp_path, priority=4, tags=["b", "a"],
        after=[first, "1:any"], time_limit="2h", grace=3, retries=2, restartable=True,
        begin="2099-01-01T00:00", stdout="out.txt", keep_children=True, dedupe="k", on_oom="alone",
    )  # fmt: skip
    facts = made.info()
    expected: dict[str, Any] = {
        "gpus": 2, "exclusive": True, "name": "n", "cwd": str(tmp_path), "priority": 4,
        "tags": ["a", "b"], "time_limit": 7200.0, "retries": 2, "restartable": True, "dedupe": "k",
        "after": [{"job": 1, "condition": "any", "met": False}], "on_oom": "alone",
        "state": "queued",
    }  # fmt: skip
    assert {key: facts[key] for key in expected} == expected
    assert (
        datetime.fromisoformat(facts["eligible_at"]).timestamp() == datetime(2099, 1, 1).timestamp()
    )


def test_array_is_a_list_of_jobs(here: Lab) -> None:
    jobs = submit("true", array="0-8:4%2", name="many", hold=True)
    assert [job.info()["array_index"] for job in jobs] == [0, 4, 8]
    [again] = submit(["true"], array=range(5, 6), after="many", hold=True)
    assert [one["job"] for one in again.info()["after"]] == [job.id for job in jobs]
    later = submit("true", after=["@~1:any", jobs[0]], hold=True).info()["after"]
    assert [(one["job"], one["condition"]) for one in later] == [(1, "ok"), (3, "any")]
    wrong: list[Any] = ["x", [], 1.5]
    for value in wrong:
        with pytest.raises(UsageError, match="`array`"):
            submit("true", array=value)
    with pytest.raises(UsageError, match="`array` is for commands, not for functions"):
        job(print, array="0-1").submit()  # type: ignore[call-overload]


def test_misspelled_option_gets_a_suggestion(here: Lab) -> None:
    wrong: list[tuple[Callable[[], object], str, str]] = [
        (lambda: submit("true", time_limt=5), "time_limt", "time_limit"),  # type: ignore[call-overload]
        (lambda: Executor(gpuss=1), "gpuss", "gpus"),  # type: ignore[call-arg]
        (lambda: sweep("true {x}", {"x": [1]}, max_paralel=1), "max_paralel", "max_parallel"),
        (lambda: sweep("true {x}", {"x": [1]}, retris=1), "retris", "retries"),
    ]
    for call, name, near in wrong:
        with pytest.raises(UsageError, match=f"`{name}` is not an option of") as caught:
            call()
        assert caught.value.hint == f"did you mean `{near}`?"


def test_env_option_reaches_the_job(here: Lab) -> None:
    names = ("A", "B", "STOKER_SUBMIT_DIR")
    found = (
        job(job_functions.environment, env={"A": "x y", "B": 3}, cwd="/").submit(*names).result()
    )
    assert found == {"A": "x y", "B": "3", "STOKER_SUBMIT_DIR": "/"}


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({"time_limit": 90}, "time_limit", 90.0),
        ({"time_limit": "90"}, "time_limit", 5400.0),  # a bare number is minutes, as for `submit`
        ({"time_limit": timedelta(hours=1)}, "time_limit", 3600.0),
        ({"time_limit": None}, "time_limit", None),
        ({"tags": "one"}, "tags", ("one",)),
        ({"tags": "a,b"}, "tags", ("a", "b")),
        ({"tags": ["a,b", "c"]}, "tags", ("a", "b", "c")),
        ({"signal": "USR1@60", "time_limit": 90}, "signal", "USR1@60"),
    ],
)
def test_option_values_are_converted(options: dict[str, Any], field: str, value: object) -> None:
    fields = read_options(options).fields
    assert {**fields, **fields["settings"].values()}[field] == value


def test_resources_of_the_host_are_converted() -> None:
    request = read_options({"cpus": 4, "mem": "2G", "need": {"b": 2, "a": 1}}).request
    assert (request.cpus, request.host_memory, request.needs) == (4, 2 << 30, ("a=1", "b=2"))
    assert read_options({"mem": "auto", "need": "a"}).request.is_auto_host
    assert read_options({"need": ["a=2", "a=3"]}).request.needs == ("a=3",)


def test_way_to_share_a_gpu_is_converted() -> None:
    assert read_options({"share": "MPS:050"}).request.share == "mps:50"
    assert read_options({"share": None}).request.share == ""


def test_memory_option_is_a_string_or_bytes() -> None:
    assert read_options({"gpu_mem": "20G"}).request.memory == 20 << 30
    assert read_options({"gpu_mem": 1 << 30}).request.memory == 1 << 30
    assert read_options({"gpu_mem": "auto"}).request.is_auto
    assert read_options({"gpu_ids": [0, 2]}).request.ids == ("0", "2")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gpu": 1}, "`gpu` is not an option of a job"),
        ({"gpus": -1}, "`gpus` must not be negative, but is -1"),
        ({"gpus": True}, "`gpus` must be an integer, not True"),
        ({"cpus": 0}, "`cpus` must be 1 or more"),
        ({"mem": 1.5}, "`mem` must be a size, not 1.5"),
        ({"need": {"a": 0}}, "`need`: `a=0` is not the amount of a counter"),
        ({"need": 3}, "`need` must be a list of counters, not 3"),
        ({"gpus": 1.5}, "`gpus` must be an integer, not 1.5"),
        ({"gpus": "2"}, "`gpus` must be an integer, not '2'"),
        ({"gpus": int}, "`gpus` must be an integer, not <class 'int'>"),
        ({"gpus": 1 << 70}, "`gpus` is too large"),
        ({"gpus": [0, 1]}, "`gpus` must be an integer, not [0, 1]"),
        ({"gpu_mem": 20}, "`gpu_mem`: 20 B is too small"),
        ({"gpu_mem": "20"}, "`gpu_mem`: 20 B is too small"),
        ({"min_gpu_mem": "20K"}, "`min_gpu_mem`: 20 KiB is too small"),
        ({"gpu_mem": "much"}, "`gpu_mem`: `much` is not a size"),
        ({"gpu_mem": "20X"}, "`gpu_mem`: `20X` is not a size"),
        ({"gpu_mem": 0}, "`gpu_mem` must not be 0"),
        ({"gpu_mem": "0"}, "`gpu_mem` must not be 0"),
        ({"gpu_mem": 1.5}, "`gpu_mem` must be a size, not 1.5"),
        ({"min_gpu_mem": {}}, "`min_gpu_mem` must be a size, not {}"),
        ({"gpu_model": ""}, "`gpu_model` must not be empty"),
        ({"gpus": 0, "gpu_model": "H100"}, "`gpu_model` needs `gpus` 1 or more"),
        ({"gpus": 0, "prefer": [1]}, "`prefer` needs `gpus` 1 or more"),
        ({"gpus": 0, "share": "mps"}, "`share` needs `gpus` 1 or more"),
        ({"gpus": 2, "share": "mps"}, '`share="mps"` is for jobs with one GPU'),
        ({"share": "cuda"}, "`share`: `cuda` is not a way to share a GPU"),
        ({"share": 5}, "`share` must be a string, not 5"),
        ({"gpus": 0, "on_oom": "fail"}, "`on_oom` needs `gpus` 1 or more"),
        ({"gpu_mem": "1G", "exclusive": True}, "`gpu_mem` and `exclusive` exclude each other"),
        (
            {"gpus": 0, "gpu_mem": "1G"},
            "`gpu_mem` needs `gpus` 1 or more",
        ),
        ({"gpu_ids": [1, 1]}, "`gpu_ids` must be a list of GPUs, not [1, 1]"),
        ({"gpu_ids": 1}, "`gpu_ids` must be a list of GPUs, not 1"),
        ({"gpu_ids": [None]}, "`gpu_ids` must be a list of GPUs, not [None]"),
        ({"gpu_ids": b"0"}, "`gpu_ids` must be a list of GPUs, not b'0'"),
        ({"on_oom": "cry"}, "`on_oom`: `cry` is not a valid action"),
        ({"on_oom": 3}, "`on_oom` must be a string, not 3"),
        ({"time_limit": "x"}, "`time_limit`: `x` is not a duration"),
        ({"time_limit": -1}, "`time_limit` must not be negative, but is -1"),
        ({"time_limit": timedelta(-1)}, "`time_limit` must not be negative"),
        ({"time_limit": float("nan")}, "`time_limit` must be a duration, not nan"),
        ({"time_limit": 1e11}, "`time_limit` is too long"),
        ({"time_limit": [1]}, "`time_limit` must be a duration, not [1]"),
        ({"grace": True}, "`grace` must be a duration, not True"),
        ({"retries": "many"}, "`retries` must be an integer, not 'many'"),
        ({"hold": 1}, "`hold` must be True or False, not 1"),
        ({"name": 3}, "`name` must be a string, not 3"),
        ({"name": ""}, "`name` must not be empty"),
        ({"group": " "}, "`group` must not be empty"),
        ({"dedupe": ""}, "`dedupe` must not be empty"),
        ({"name": "a\0b"}, "`name` contains a NUL byte"),
        ({"name": "\ud800"}, "`name` contains characters"),
        ({"tags": [1]}, "`tags` must be a string or a list of strings, not [1]"),
        ({"tags": 3}, "`tags` must be a string or a list of strings, not 3"),
        ({"env": "x"}, "`env` must be a dict, not 'x'"),
        ({"env": {1: "1"}}, "`env`: the name of a variable must be a string, not 1"),
        ({"env_file": 3}, "`env_file` must be a path or a list of paths, not 3"),
        ({"env_file": [3]}, "`env_file` must be a path, not 3"),
        ({"after": 1.5}, "`after` must be a job or a list of jobs, not 1.5"),
        ({"env": {"A=B": "1"}}, "`A=B` is not a valid name"),
        ({"env": {"A": "\0"}}, "the variable `A` contains a NUL byte"),
        ({"env": {"A": None}}, "`env`: the variable `A` must be a string, a path or a number"),
        ({"begin": "later"}, "`begin`: `later` is not a time"),
        ({"begin": 1e300}, "`begin` must be a time, not 1e+300"),
        ({"begin": True}, "`begin` must be a time, not True"),
        ({"signal": "LOUD@1"}, "`signal`: unknown signal `LOUD`"),
        ({"signal": "USR1@60"}, "`signal` needs `time_limit`"),
        ({"cwd": 3}, "`cwd` must be a path, not 3"),
        ({"cwd": ""}, "`cwd` must not be empty"),
    ],
)
def test_invalid_option_is_refused_where_it_is_written(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        job(job_functions.add, **options)
    assert words in caught.value.message


@pytest.mark.parametrize("begin", [timedelta(days=1), "+1d", "now+24h"])
def test_begin_option_may_be_relative(here: Lab, begin: str | timedelta) -> None:
    facts = submit("true", begin=begin).info()
    later = datetime.fromisoformat(facts["eligible_at"]).timestamp()
    sooner = datetime.fromisoformat(facts["submitted_at"]).timestamp()
    assert later - sooner == pytest.approx(86400, abs=60)


@pytest.mark.parametrize(
    ("what", "options", "words"),
    [
        ("", {}, "the command is empty"),
        ([], {}, "the command is empty"),
        (["a", "b\0c"], {}, "word 2 of the command contains a NUL byte"),
        ("a\0b", {}, "word 1 of the command contains a NUL byte"),
        (["a", "b" * 140_000], {}, "word 2 of the command has 140000 bytes"),
        (["a", 3], {}, "word 2 of the command must be a string or a path, not 3"),
        (7, {}, "7 is neither a command nor a function"),
        (b"true", {}, "b'true' is neither a command nor a function"),
        ("true", {"cwd": "/nowhere/at/all"}, "the folder `/nowhere/at/all` does not exist"),
        ("true", {"after": "x:maybe"}, "`x:maybe` is not a dependency"),
        ("true", {"after": ["1:maybe"]}, "`1:maybe` is not a dependency"),
        ("true", {"env": {"BIG": "x" * 140_000}}, "the environment variable `BIG` has more than"),
    ],
)
def test_invalid_command_is_refused(
    here: Lab, what: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        submit(what, **options)
    assert words in caught.value.message
    assert Queue().jobs("all") == []


def test_hints_name_options_as_in_python(here: Lab) -> None:
    with pytest.raises(Impossible) as caught:
        submit("true", gpus=3)
    assert caught.value.hint == "use gpus=2 or fewer"
    with pytest.raises(Impossible) as caught:
        submit("true", gpu_mem="900G")
    assert caught.value.hint == (
        'use gpu_mem="80G" or less; GPUs on this host: 2 x simulated (80 GiB)'
    )
    with pytest.raises(Impossible, match="the job requests 2 GPUs, but `gpu_ids` lists 1"):
        submit("true", gpus=2, gpu_ids=[0])
    with pytest.raises(UsageError) as refused:
        submit("true", signal="USR1")
    assert refused.value.hint == 'add time_limit="2h"'
    with pytest.raises(UsageError) as refused:
        sweep("true {x}", {"x": "log(1, 2)"}, method="tpe", trials=3)
    assert refused.value.hint == 'add metric="val_loss"'
    with pytest.raises(UsageError) as refused:
        sweep("true {x}", {"x": "log(1, 2)"})
    assert refused.value.hint == "for example: trials=100"


@pytest.mark.parametrize(
    ("params", "options", "words"),
    [
        ({"x": [1]}, {"max_parallel": 0}, "`max_parallel` must be an integer, 1 or more, not 0"),
        ({"x": [1]}, {"trials": "3"}, "`trials` must be an integer, 1 or more, not '3'"),
        ({"x": [1]}, {"seed": 1.5}, "`seed` must be an integer, not 1.5"),
        ({"x": [1]}, {"same_fails": -1}, "`same_fails` must be an integer, 0 or more, not -1"),
        ({"x": [1]}, {"name": 3}, "`name` must be a string, not 3"),
        ({}, {}, "a sweep needs a parameter"),
        (3, {}, "the parameters must be a dict or a list of dicts, not 3"),
    ],
)
def test_invalid_option_of_a_sweep_is_refused(
    here: Lab, params: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        sweep("true {x}", params, **options)
    assert words in caught.value.message


def test_mask_with_too_few_gpus_is_named(here: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with pytest.raises(Impossible, match="2 GPUs, but `CUDA_VISIBLE_DEVICES` lists 1"):
        submit("true", gpus=2)


def test_dependency_may_be_given_in_several_ways(here: Lab) -> None:
    first = submit("true", hold=True)
    for after in (first, 1, "1", "1:ok", [first], [1], Dependency(1), [Dependency(1, "ok")]):
        facts = submit("true", after=after).info()
        assert facts["after"] == [{"job": 1, "condition": "ok", "met": False}]


def test_extra_arguments_of_a_command_are_explained(here: Lab) -> None:
    with pytest.raises(UsageError, match="a command takes no further arguments"):
        submit("python", "train.py")  # type: ignore[call-overload]


def test_begin_may_be_a_time_of_day_as_on_the_command_line(here: Lab) -> None:
    at = datetime.fromisoformat(submit("true", begin="23:59").info()["eligible_at"])
    assert (at.astimezone().hour, at.astimezone().minute) == (23, 59)


def test_mask_of_the_submitter_restricts_jobs_of_the_python_api(
    here: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert submit("true", gpus=1, hold=True).info()["gpu_ids"] == ["1"]
    assert submit("true", gpus=1, gpu_ids=[0], hold=True).info()["gpu_ids"] == ["0"]


def test_static_types_name_every_option() -> None:
    # `array` has its own overload of `submit`, which returns a list.
    assert set(Options.__annotations__) == set(NAMES) - {"array"}
