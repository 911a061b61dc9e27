"""Submitting through the web API: single jobs, batches, the format of GPUPeasy, and sweeps."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.features.environments import layouts
from tests.web.site import Site


@pytest.fixture
def site(shared_site: Site) -> Site:
    return shared_site


def test_command_runs_with_its_options(site: Site) -> None:
    job = site.submit(
        'echo "$GREETING $(pwd)"', env={"GREETING": "hello"}, name="greet", gpus=1, priority=2,
        tags=["a"], time_limit="2h", retries=1, restartable=True,
    )  # fmt: skip
    lab = site.lab
    lab.wait(job)
    assert lab.log(job) == f"hello {lab.folder}\n"
    seen = lab.job(job)
    assert (seen["name"], seen["priority"], seen["tags"]) == ("greet", 2, ["a"])
    assert (seen["time_limit"], seen["retries"], seen["restartable"]) == (7200, 1, True)


def test_job_page_shows_how_a_job_shares_its_gpu(site: Site) -> None:
    job = site.submit("true", share="mps:50")
    site.lab.wait(job)
    seen = site.get(f"/api/jobs/{job}").json["job"]
    assert (seen["share"], seen["under_mps"]) == ("mps:50", False)
    assert "MPS is not used: the GPU is simulated" in str(seen["events"])


def test_preemptible_job_of_the_web_ui_is_one(site: Site) -> None:
    job = site.submit("true", preemptible=True, no_bind=True)
    site.lab.wait(job)
    seen = site.get(f"/api/jobs/{job}").json["job"]
    assert (seen["preemptible"], seen["preemptions"], seen["gives_way_to"]) == (True, 0, None)
    assert (seen["restartable"], seen["no_bind"]) == (True, True)


def test_job_of_the_web_ui_runs_in_its_virtual_environment(site: Site) -> None:
    venv = layouts.venv(site.lab.folder / "venv")
    job = site.submit(f"python -c '{layouts.PREFIX}'", gpus=0, venv=str(venv))
    site.lab.wait(job)
    assert site.lab.log(job) == f"{venv}\n"
    assert site.get(f"/api/jobs/{job}").json["job"]["venv"] == str(venv)
    refused = site.post("/api/jobs", {"command": "true", "gpus": 0, "conda": "no-such"})
    assert refused.status == 400
    assert refused.json["error"]["field"] == "conda"


def test_job_reserves_cores_and_memory_of_the_host(site: Site) -> None:
    job = site.submit("sleep 600", gpus=0, cpus=3, mem="1G")
    site.lab.wait_until(lambda: site.lab.state(job) == "running")
    seen = site.get(f"/api/jobs/{job}").json["job"]
    assert (seen["cpus"], seen["mem_bytes"], seen["claim_cpus"]) == (3, 1 << 30, 3.0)
    assert seen["reserves"] == "3 cores, 1.0 GiB of memory"
    host = site.overview()["resources"]
    assert host["cores"] == 64
    assert host["cores_reserved"] >= 3
    assert "of 64 cores" in host["words"]
    site.lab.ok("cancel", "--now", str(job))
    refused = site.post("/api/jobs", {"command": "true", "gpus": 0, "cpus": 65})
    assert refused.status >= 400
    assert refused.json["error"]["field"] == "cpus"
    (shown,) = site.post(
        "/api/jobs", {"command": "true", "gpus": 0, "cpus": 2, "dry_run": True}
    ).json["dry_run"]
    assert shown["needs"] == "no GPU, 2 cores"


def test_array_and_dependencies_of_the_form_are_used(site: Site) -> None:
    form = {"command": "true", "gpus": 0, "array": "1-2%1", "name": "many", "hold": True}
    jobs = site.post("/api/jobs", form).json["jobs"]
    assert site.get(f"/api/jobs/{jobs[1]}").json["job"]["array_index"] == 2
    form = {"command": "true", "gpus": 0, "after": ["many:any", "@"], "hold": True}
    (shown,) = site.post("/api/jobs", {**form, "dry_run": True}).json["dry_run"]
    assert shown["after"] == ["many:any", "@:ok"]
    (job,) = site.post("/api/jobs", form).json["jobs"]
    found = site.get(f"/api/jobs/{job}").json["job"]["after"]
    assert [(one["job"], one["condition"]) for one in found] == [(jobs[0], "any"), (jobs[1], "ok")]
    refused = site.post("/api/jobs", {**form, "after": ["gone"]})
    assert (refused.status, refused.json["error"]["field"]) == (404, "after")


def test_argv_is_not_changed(site: Site) -> None:
    words = ["printf", "%s\n", "$HOME; `id`", "two  blanks"]
    reply = site.post("/api/jobs", {"argv": words, "gpus": 0})
    job = reply.json["jobs"][0]
    site.lab.wait(job)
    assert site.lab.log(job) == "$HOME; `id`\ntwo  blanks\n"
    assert site.lab.job(job)["cwd"] == os.path.expanduser("~")


def test_dry_run_queues_nothing(site: Site) -> None:
    before = site.overview()["counts"]
    reply = site.post("/api/jobs", {"command": "true", "gpus": 2, "dry_run": True})
    assert reply.status == 200
    (shown,) = reply.json["dry_run"]
    assert (shown["argv"], shown["shell"], shown["gpus"]) == (["true"], True, 2)
    assert site.overview()["counts"] == before


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({}, 400),
        ({"command": ""}, 400),
        ({"command": "true", "argv": ["true"]}, 400),
        ({"argv": []}, 400),
        ({"command": "a\0b"}, 400),
        ({"command": "true", "cwd": "/nowhere/at/all"}, 400),
        ({"command": "true", "gpus": -1}, 400),
        ({"command": "true", "gpus": 3}, 422),
        ({"command": "true", "gpu_mem": "lots"}, 400),
        ({"command": "true", "after": [424242]}, 404),
        ({"command": "true", "after": "yesterday"}, 404),
        ({"command": "true", "after": "7:yesterday"}, 400),
        ({"command": "true", "array": "many"}, 400),
        ({"command": "true", "begin": "soon"}, 400),
        ({"command": "true", "time_limit": -5}, 400),
        ({"command": "true", "stdout": "/etc/passwd"}, 400),
        ({"command": "true", "stdout": "../x"}, 400),
        ({"command": "true", "stderr": "a/../../x"}, 400),
        ({"command": "true", "env": {"A=B": "c"}}, 400),
        ({"command": "true", "name": "\ud800"}, 400),
        ({"command": "\ud800"}, 400),
        ({"command": "true", "tags": ["\ud800"]}, 400),
        ({"command": "true", "shell": "/bin/evil"}, 400),
    ],
)
def test_invalid_form_is_refused_with_a_message(
    site: Site, form: dict[str, Any], status: int
) -> None:
    reply = site.post("/api/jobs", form)
    assert reply.status == status, reply
    assert reply.json["error"]["message"]


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({"command": ""}, "command"),
        ({"command": "true", "cwd": "/nowhere/at/all"}, "cwd"),
        ({"command": "true", "gpus": -1}, "gpus"),
        ({"command": "true", "gpus": 3}, "gpus"),
        ({"command": "true", "gpu_mem": "lots"}, "gpu_mem"),
        ({"command": "true", "gpu_ids": ["9"]}, "gpu_ids"),
        ({"command": "true", "time_limit": "never", "priority": 3}, "time_limit"),
        ({"command": "true", "after": [424242]}, "after"),
        ({"command": "true", "begin": "soon"}, "begin"),
        ({"command": "true", "on_oom": "cry"}, "on_oom"),
        ({"command": "true", "based_on": 424242}, None),
        ({}, "command"),
        ({"argv": [""]}, "command"),
        ({"command": "true", "signal": "USR1@60"}, "time_limit"),
        ({"command": "true", "signal": "NOPE@60", "time_limit": "1h"}, "signal"),
        ({"command": "true", "gpu_mem": "1G", "exclusive": True}, "gpu_mem"),
        ({"command": "true", "gpu_model": "nothing like it"}, "gpu_model"),
        ({"command": "true", "gpu_mem": "9000G"}, "gpu_mem"),
        ({"command": "true", "min_gpu_mem": "9000G"}, "min_gpu_mem"),
        ({"command": "true", "after": [1], "based_on": 424242}, None),
        ({"command": "true", "stdout": "../x"}, "stdout"),
        ({"command": "true", "stderr": "/etc/passwd"}, "stderr"),
    ],
)
def test_error_names_the_field_at_fault(
    site: Site, form: dict[str, Any], field: str | None
) -> None:
    assert site.post("/api/jobs", form).json["error"].get("field") == field


def test_dependency_that_cannot_be_met_names_its_field(site: Site) -> None:
    failed = site.submit("false", gpus=0)
    site.lab.wait(failed)
    reply = site.post("/api/jobs", {"command": "true", "after": [failed]})
    assert (reply.status, reply.json["error"]["field"]) == (409, "after")


def test_output_path_that_is_a_folder_names_its_field(site: Site, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for field in ("stdout", "stderr"):
        form = {"command": "true", "cwd": str(tmp_path), field: "folder"}
        assert site.post("/api/jobs", form).json["error"]["field"] == field


def test_refused_sweep_names_the_parameter_at_fault(site: Site) -> None:
    form = {"command": "echo {lr}", "parameters": {"lr": "log(1"}}
    assert site.post("/api/sweeps", form).json["error"]["field"] == "parameters.lr"
    form = {"command": "echo {lr}", "parameters": {"lr": "1"}, "options": {"gpus": 9}}
    assert site.post("/api/sweeps", form).json["error"]["field"] == "gpus"


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"parameters": {"lr": "1", "metric": "("}}, "parameters.metric"),
        ({"parameters": {"lr": {"vaules": [1]}}}, "parameters.lr"),
        ({"command": "echo"}, "command"),
        ({"command": None}, "command"),
        ({"method": "tpe"}, "metric"),
        ({"method": "magic"}, "method"),
        ({"metric": "!"}, "metric"),
        ({"early_stop": "never", "metric": "loss"}, "early_stop"),
        ({"options": {"cwd": "/nowhere/at/all"}}, "cwd"),
    ],
)
def test_refused_sweep_names_its_field(site: Site, more: dict[str, Any], field: str) -> None:
    form = {"command": "echo {lr}", "parameters": {"lr": "1,2"}, "dry_run": True, **more}
    assert site.post("/api/sweeps", form).json["error"].get("field") == field


def test_batch_is_read_like_a_job_file(site: Site) -> None:
    text = (
        "# two jobs\n"
        "echo one \\\n  more\n"
        "\n"
        "#stoker --tag night,long\n"
        "echo two #stoker --name second --priority 4 --time-limit 5\n"
    )
    form = {"text": text, "cwd": str(site.lab.folder), "tags": ["all"], "hold": True}
    shown = site.post("/api/batch", {**form, "dry_run": True}).json
    assert [one["argv"] for one in shown["dry_run"]] == [["echo one   more"], ["echo two"]]
    first, second = site.post("/api/batch", form).json["jobs"]
    assert site.lab.job(first)["tags"] == ["all"]
    seen = site.lab.job(second)
    assert (seen["tags"], seen["name"], seen["priority"]) == (["all", "long", "night"], "second", 4)
    assert seen["time_limit"] == 300


@pytest.mark.parametrize(
    "line",
    ["true #stoker --strange", "true #stoker --gpus x", "a\0b", "true #stoker 'open",
     "true #stoker --env-file /etc/passwd", "true #stoker --stdout /etc/x", "true #stoker words"],
)  # fmt: skip
def test_batch_with_an_invalid_line_queues_no_job(site: Site, line: str) -> None:
    before = site.overview()["counts"]
    assert site.post("/api/batch", {"text": f"true\n{line}\n"}).status == 400
    assert site.overview()["counts"] == before


def test_batch_without_a_job_is_a_usage_error(site: Site) -> None:
    for text in ("", "# nothing\n", "\n\n"):
        assert site.post("/api/batch", {"text": text}).status == 400


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"command": "echo {lr}", "parameters": {}}, "a sweep needs a parameter"),
        ({"command": "echo {lr}", "parameters": {"lr": ""}}, "has no values"),
        ({"command": "echo {other}", "parameters": {"lr": "1,2"}}, "other"),
        ({"command": "echo {lr}", "parameters": {"lr": "log(1"}}, ""),
        (
            {"command": "echo {lr}", "parameters": {"lr": "log(1,2)"}, "method": "random"},
            "needs --trials N",
        ),
        ({"command": "echo {lr}", "parameters": {"lr": "1"}, "method": "magic"}, "method"),
        ({"command": 'echo "{lr}"', "parameters": {"lr": ["$(id)"]}, "name": "../x"}, "name"),
        ({"parameters": {"lr": "1"}}, "a sweep needs a command"),
    ],
)
def test_invalid_sweep_is_refused(site: Site, form: dict[str, Any], message: str) -> None:
    reply = site.post("/api/sweeps", {**form, "dry_run": True})
    assert reply.status == 400, reply
    assert message in str(reply.json["error"])


def test_preview_of_a_huge_sweep_counts_without_enumerating(site: Site) -> None:
    form = {"command": "echo {a} {b}", "parameters": {"a": "range(1000)", "b": "range(900)"}}
    shown = site.post("/api/sweeps", {**form, "dry_run": True}).json
    assert (len(shown["commands"]), shown["total"]) == (100, 900_000)
    assert shown["commands"][1] == "echo 0 1"


def test_values_of_a_sweep_are_quoted_for_the_shell(site: Site) -> None:
    form = {"command": "echo {x}", "parameters": {"x": ["$(id)", "a b"]}, "dry_run": True}
    shown = site.post("/api/sweeps", form).json["commands"]
    assert shown == ["echo '$(id)'", "echo 'a b'"]
