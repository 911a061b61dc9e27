"""Jobs on backends, and the nodes of backends, in the web API: the same as on the command line."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from stoker.client.views.why import explain_wait
from stoker.engine.store import job_queries
from stoker.features.backends import store as backends
from stoker.features.backends import store_allocations as allocations
from stoker.settings import Settings
from stoker.states import STATES
from stoker.web.models import Job, Overview
from tests.lab import Lab
from tests.web.cluster_rows import ClusterRows
from tests.web.conftest import free_port
from tests.web.site import Site


@pytest.fixture
def rows(lab: Lab) -> ClusterRows:
    return ClusterRows(lab)


@pytest.fixture
def site(lab: Lab, rows: ClusterRows) -> Site:
    return Site(lab, "--port", free_port())


def cli(site: Site, *words: str) -> Any:
    return json.loads(site.lab.ok(*words, "--json"))


def place_in_ls(site: Site, job: int) -> str:
    """The text of the GPU column of `stoker ls`, which may contain single spaces."""
    header, line = site.lab.ok("ls", str(job)).splitlines()
    return line[header.index("GPU") : header.index("NAME")].strip()


def test_jobs_of_backends_are_in_the_lists_of_the_overview(rows: ClusterRows, site: Site) -> None:
    running = rows.started("train", node="n2", node_gpus="0,1")
    submitted = rows.submitted("train")
    queued = rows.queued("train")
    done = rows.finished("train", node="n1", node_gpus="3")
    seen = site.overview()
    Overview.model_validate(seen)
    assert [job["id"] for job in seen["running"]] == [running]
    assert [job["id"] for job in seen["queue"]] == [submitted, queued]
    assert [job["id"] for job in seen["recent"]] == [done]
    shown = {}
    for job in (*seen["running"], *seen["queue"], *seen["recent"]):
        extra = ("run", "why", "why_short", "starts_in", "ready")
        shown[job["id"]] = {key: value for key, value in job.items() if key not in extra}
    assert shown == {job["id"]: job for job in cli(site, "ls", "--state", "all")["jobs"]}
    assert set(shown[running]) == set(Job.model_fields)
    assert seen["counts"] == {"running": 1, "submitted": 1, "queued": 1, "done": 1}


def test_place_is_worded_as_in_ls(rows: ClusterRows, site: Site) -> None:
    jobs = {
        rows.started("train", node="n2", node_gpus="0,1"): "lab n2:0,1",
        rows.started("train", node="n1", node_gpus=""): "lab n1",
        rows.submitted("train", gpus=4): "lab (4)",
        rows.queued("train", gpus=8, nodes=2): "lab (2x8)",
        rows.queued("train", gpus=0): "lab",
        rows.finished("train", node="n1", node_gpus="3"): "lab n1:3",
        site.submit("true", hold=True): "(1)",
    }
    for job, place in jobs.items():
        found = site.ok(f"/api/jobs/{job}")["job"]
        assert found["place"] == place == place_in_ls(site, job)
        assert found["on"] == ("lab" if place.startswith("lab") else "local")


def test_reasons_are_those_of_why(rows: ClusterRows, site: Site) -> None:
    submitted = rows.submitted("train", reason="Resources")
    queued = rows.queued("train")
    rows.set_problem("slurm_load_jobs: Unable to contact slurm controller")
    seen = {job["id"]: job for job in site.overview()["queue"]}
    for job in (submitted, queued):
        reasons = cli(site, "why", str(job))["jobs"][0]["reasons"]
        assert any("Unable to contact slurm controller" in reason for reason in reasons)
        assert site.ok(f"/api/jobs/{job}")["job"]["why"] == reasons
        assert seen[job]["why"] == "; ".join(reasons)
        assert (seen[job]["ready"], seen[job]["starts_in"]) == (False, None)
    assert "it is in the queue of Slurm as job 4711: Resources" in seen[submitted]["why"]


def test_reason_of_a_job_whose_allocation_was_just_withdrawn_is_known(
    rows: ClusterRows, lab: Lab
) -> None:
    job = job_queries.job(rows.db, rows.submitted("train"))
    assert job.allocation is not None
    with rows.db.transaction():
        allocations.withdraw(rows.db, job.allocation, time.time())
    rows.set_problem("invalid partition")
    reasons = explain_wait(rows.db, Settings(str(lab.state_dir)), job).reasons
    assert any("invalid partition" in reason for reason in reasons)


def test_backends_and_nodes_are_those_of_the_command_line(rows: ClusterRows, site: Site) -> None:
    (lab,) = site.overview()["backends"]
    assert lab == cli(site, "backend", "ls")["backends"][1]
    assert [{"on": "lab", **node} for node in lab["nodes"]] == cli(site, "gpus")["nodes"]
    assert lab["summary"] == "2 nodes, 16 GPUs (11 in use), 1 node not available"
    assert lab["summary"] in site.lab.ok("backend", "ls")
    rows.set_problem("cannot reach the controller")
    assert site.overview()["backends"][0]["problem"] == "cannot reach the controller"


def test_variables_that_lead_to_an_engine_are_never_returned(rows: ClusterRows, site: Site) -> None:
    with rows.db.transaction():
        backends.add(rows.db, "secret", "slurm", {}, None, {"SLURM_JWT": "hunter2"})
    reply = site.get("/api/overview")
    assert "secret" in [one["name"] for one in reply.json["backends"]]
    assert b"hunter2" not in reply.body


def test_stream_reports_changed_nodes_places_and_reasons(rows: ClusterRows, site: Site) -> None:
    job = rows.submitted("train", reason="Priority")
    with site.stream(site.overview()["event_id"]) as events:
        rows.set_problem("the controller does not answer")
        changed = events.until(lambda data: "backends" in data)[-1]
        assert changed["backends"][0]["problem"] == "the controller does not answer"
        waits = events.until(lambda data: str(job) in data["waits"])[-1]["waits"]
        assert "the controller does not answer" in waits[str(job)]["why"]
        other = rows.started("train", node="n1", node_gpus="5")
        found = events.until(lambda data: any(one["id"] == other for one in data["jobs"]))[-1]
        assert "backends" not in found  # unchanged, and perhaps large
        assert [one["place"] for one in found["jobs"] if one["id"] == other] == ["lab n1:5"]


def test_history_filters_by_backend_and_by_the_state_submitted(
    rows: ClusterRows, site: Site
) -> None:
    submitted, running = rows.submitted("train"), rows.started("train")
    here = site.submit("true", hold=True)

    def found(query: str) -> list[int]:
        return [job["id"] for job in site.ok(f"/api/jobs?{query}")["jobs"]]

    assert found("state=submitted") == [submitted]
    assert found("on=lab") == [running, submitted]
    assert found("on=lab&state=running") == [running]
    assert found("on=local") == [here]
    assert found("on=unknown") == []
    for state in STATES:
        assert site.get(f"/api/jobs?state={state}").status == 200


def test_submitted_job_can_be_cancelled_but_not_held_or_edited(
    rows: ClusterRows, site: Site
) -> None:
    job = rows.submitted("train")
    for action in ({"action": "hold"}, {"action": "release"}, {"action": "priority", "priority": 3},
                   {"action": "rerun"}, {"action": "rm"}):  # fmt: skip
        reply = site.post("/api/jobs/act", {**action, "ids": [job]})
        assert (reply.status, reply.code) == (409, "conflict"), action
    reply = site.post(f"/api/jobs/{job}", {"gpus": 2}, "PATCH")
    assert (reply.status, reply.code) == (409, "conflict")
    reply = site.post("/api/jobs/act", {"action": "cancel", "ids": [job]})
    assert (reply.status, reply.json["cancelled"], reply.json["stopping"]) == (200, 0, 1)


def test_log_of_a_job_on_a_backend_is_read_from_its_file(rows: ClusterRows, site: Site) -> None:
    running, submitted = rows.started("train", node="n2"), rows.submitted("train")
    (line, *_) = site.ok(f"/api/jobs/{running}/log")["lines"]
    assert line["spans"] == [{"text": "hello from n2"}]
    assert site.ok(f"/api/jobs/{submitted}/log")["lines"] == []


# -- forms ----------------------------------------------------------------------------------------


def dry_run(site: Site, path: str, **form: object) -> Any:
    return site.post(path, {**form, "dry_run": True})


def test_previews_show_where_jobs_run(site: Site) -> None:
    options = {"on": "lab", "nodes": 2, "gpus": 8, "option": ["constraint=h100", "qos=a,b"]}
    (job,) = dry_run(site, "/api/jobs", command="train", **options).json["dry_run"]
    wanted = {"on": "lab", "nodes": 2, "option": ["constraint=h100", "qos=a,b"]}
    assert {key: job[key] for key in wanted} == wanted
    assert job["needs"] == "8 GPUs on each of 2 nodes of lab"
    flags = ("--on", "lab", "--nodes", "2", "-G8", "--option", "qos=a,b")
    in_terminal = site.lab.ok("submit", "--dry-run", *flags, "train")
    assert in_terminal.startswith(f"{job['needs']}, options qos=a,b  ")
    batch = dry_run(site, "/api/batch", text="a\nb #stoker --on local --nodes 1", **{"on": "lab"})
    assert [job["on"] for job in batch.json["dry_run"]] == ["lab", "local"]
    sweep = dry_run(
        site, "/api/sweeps", command="train {lr}", parameters={"lr": "1,2"}, options=options
    ).json
    assert {key: sweep[key] for key in wanted} == wanted
    here = dry_run(site, "/api/jobs", command="train", on="local").json["dry_run"][0]
    assert (here["on"], here["needs"]) == ("local", "1 GPU")


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ({"on": "lap"}, "on", "there is no backend `lap`"),
        ({"on": "lab", "nodes": 4}, "nodes", "requests 4 nodes"),
        ({"on": "lab", "nodes": 0}, "nodes", "`nodes`"),
        ({"nodes": 2}, "nodes", "`nodes` needs a backend"),
        ({"option": ["a=b"]}, "option", "`option` needs a backend"),
        ({"on": "lab", "option": ["a b=c"]}, "option", "`a b=c` is not an option"),
        ({"on": "lab", "option": ["array=1-3"]}, "option", "`array` of sbatch is set by Stoker"),
        ({"on": "lab", "gpus": 9}, "gpus", "requests 9 GPUs"),
        ({"on": "lab", "gpu_ids": "0"}, "gpu_ids", "Slurm chooses the GPUs"),
        ({"on": "lab", "gpu_model": "H100"}, "gpu_model", 'option="gpu-type=NAME"'),
    ],
)
def test_error_of_a_backend_option_names_its_field(
    shared_rows: Site, options: dict[str, object], field: str, words: str
) -> None:
    site = shared_rows
    for path, form in (
        ("/api/jobs", {"command": "true", **options}),
        ("/api/batch", {"text": "true", **options}),
        ("/api/sweeps", {"command": "{a}", "parameters": {"a": "1,2"}, "options": options}),
    ):
        error = dry_run(site, path, **form).json["error"]
        assert error["field"] == field, (path, error)
        assert words in f"{error['message']}; {error['hint']}", (path, error)


@pytest.fixture(scope="module")
def shared_rows(shared_site: Site) -> Site:
    ClusterRows(shared_site.lab)
    return shared_site


def test_submitted_and_cloned_jobs_keep_the_options_of_the_backend(site: Site) -> None:
    options = {"on": "lab", "nodes": 2, "gpus": 4, "option": ["mail-type=BEGIN,END"]}
    old = site.submit("train", hold=True, **options)
    shown = site.ok(f"/api/jobs/{old}")["job"]
    assert (shown["on"], shown["nodes"], shown["gpus"]) == ("lab", 2, 4)
    assert shown["option"] == ["mail-type=BEGIN,END"]
    # As the form of a clone sends them.
    given = {key: shown[key] for key in ("on", "nodes", "gpus", "option")}
    clone = site.submit(shown["command"], hold=True, based_on=old, **given)
    found = site.ok(f"/api/jobs/{clone}")["job"]
    assert {key: found[key] for key in given} == given


def test_jobs_without_a_choice_run_on_the_backend_of_the_settings(
    new_lab: Callable[..., Lab],
) -> None:
    lab = new_lab(2, STOKER_BACKEND="lab")
    ClusterRows(lab)
    site = Site(lab, "--port", free_port())
    assert site.overview()["default_backend"] == "lab"
    for options, place in (({}, "lab (1)"), ({"on": "local"}, "(1)")):
        job = site.submit("true", hold=True, **options)
        assert site.ok(f"/api/jobs/{job}")["job"]["place"] == place


def test_requests_run_no_program_of_an_engine(new_lab: Callable[..., Lab]) -> None:
    """Programs of Slurm that would leave a trace come first in PATH."""
    lab = new_lab(2)
    folder = lab.folder / "bin"
    folder.mkdir()
    trace = lab.folder / "called"
    for name in ("squeue", "sinfo", "sbatch", "scancel", "scontrol", "sacct", "srun", "ray"):
        program = folder / name
        program.write_text(f'#!/bin/sh\necho "{name}" >> {trace}\n')
        program.chmod(0o755)
    lab.env["PATH"] = f"{folder}:{lab.env['PATH']}"
    rows = ClusterRows(lab)
    jobs = [rows.submitted("train"), rows.started("train"), rows.finished("train")]
    site = Site(lab, "--port", free_port())
    site.overview()
    for job in jobs:
        for part in ("", "/log", "/trace"):
            site.ok(f"/api/jobs/{job}{part}")
    assert dry_run(site, "/api/jobs", command="true", on="lab").status == 200
    held = site.submit("true", on="lab", hold=True)
    change = {"action": "priority", "ids": [held], "priority": 3}
    assert site.post("/api/jobs/act", change).status == 200
    assert site.post(f"/api/jobs/{held}", {"gpus": 2}, "PATCH").status == 200
    assert not trace.exists()
