"""Sweeps are cloned, extended and changed through the API, as in the terminal."""

from __future__ import annotations

from contextlib import closing
from urllib.parse import urlencode

import pytest

from tests.web.site import Site

SECRET = "hunter2-in-the-environment"


@pytest.fixture
def site(shared_site: Site) -> Site:
    return shared_site


def original(site: Site, name: str, *words: str) -> None:
    """Start a sweep from a terminal with another environment and folder; its jobs are held."""
    folder = site.lab.folder / "elsewhere"
    folder.mkdir(exist_ok=True)
    options = ("-n", name, "--gpus", "0", "--hold", "-T", "night", "-t", "90m", "--grace", "7")
    site.lab.ok("sweep", *options, *words, cwd=folder, API_KEY=SECRET)


def body_of(form: dict[str, object], **changes: object) -> dict[str, object]:
    """What the web UI sends for a form."""
    parameters = {one["name"]: one["text"] for one in form["parameters"]}  # type: ignore[attr-defined]
    taken = ("method", "trials", "seed", "max_parallel", "name", "options")
    fields = {key: form[key] for key in taken if form[key] is not None}
    command = {"argv": form["argv"]} if form["argv"] else {"command": form["command"]}
    metric = {"metric": f"{form['metric']}:{form['goal']}"} if form["metric"] else {}
    return {**fields, **command, **metric, "parameters": parameters, **changes}


def test_form_of_a_sweep_starts_the_same_sweep_under_another_name(site: Site) -> None:
    original(site, "first", "-m", "random", "-N", "3", "--seed", "5", "--metric", "acc:max",
             "--max-fails", "2", "--when", "wd: opt == 'adam'", "echo {params}",
             "lr=log(1e-4,1e-1)", "opt=sgd,adam", "wd=0.1")  # fmt: skip
    reply = site.get("/api/sweeps/first/form")
    form = reply.json
    assert SECRET not in str(reply.json)
    assert form["name"] == "first-2"
    assert [(one["name"], one["text"]) for one in form["parameters"]] == [
        ("lr", "log(0.0001,0.1)"), ("opt", "sgd,adam"), ("wd", "0.1"),
    ]  # fmt: skip
    assert "wd is used only if opt == 'adam'" in form["kept"]
    assert form["options"] == {
        "gpus": 0, "on": "local", "cwd": str(site.lab.folder / "elsewhere"), "time_limit": "90m",
        "grace": "7s", "tags": ["night"], "hold": True,
    }  # fmt: skip
    options = {key: value for key, value in form["options"].items() if key != "grace"}
    body = body_of(form, based_on="first", options=options)
    assert site.post("/api/sweeps", {**body, "dry_run": True}).json["total"] == 3
    assert site.post("/api/sweeps", body).json["added"] == 3
    old, new = site.ok("/api/sweeps/first"), site.ok("/api/sweeps/first-2")
    assert {**new["spec"], "name": "first"} == old["spec"]
    tables = [site.ok(f"/api/sweeps/{name}/results")["rows"] for name in ("first", "first-2")]
    values = [[(row["lr"], row["opt"], row.get("wd")) for row in table] for table in tables]
    assert values[0] == values[1]
    job = tables[1][0]["job"]
    from stoker.engine.store.clone_source import clone_source_of
    from stoker.engine.store.database import open_database

    with closing(open_database(str(site.lab.state_dir))) as db:
        source = clone_source_of(db, job)
    assert dict(source.context.env)["API_KEY"] == SECRET
    assert source.settings.grace == 7, "the form does not show it"


def test_edited_parameter_of_a_clone_changes_only_that_parameter(site: Site) -> None:
    original(site, "base", "echo {a} {b}", "a=1,2", "b=range(3)")
    form = site.ok("/api/sweeps/base/form")
    parameters = {"a": "7,8", "b": form["parameters"][1]["text"]}
    body = body_of(form, based_on="base", parameters=parameters)
    assert site.post("/api/sweeps", {**body, "dry_run": True}).json["commands"][0] == "echo 7 0"
    same = site.post("/api/sweeps", {**body, "name": "base"})
    assert (same.status, same.json["error"]["field"]) == (400, "name")
    wrong = site.post("/api/sweeps", {**body, "parameters": {"a": "weighted(1:2)", "b": "1"}})
    assert (wrong.status, wrong.json["error"]["field"]) == (400, "parameters.a")
    assert site.post("/api/sweeps", {**body, "based_on": "nothing"}).status == 404


def test_values_and_points_are_added_with_a_preview(site: Site) -> None:
    original(site, "grid", "echo {a} {b}", "a=1,2", "b=0")
    path = "/api/sweeps/grid/act"
    body = {"action": "add", "parameters": {"a": "2,3", "b": ""}}
    dry = site.post(path, {**body, "dry_run": True}).json
    assert (dry["added"], dry["commands"]) == (1, ["echo 3 0"])
    assert site.post(path, body).json["added"] == 1
    assert site.post(path, body).json["added"] == 0
    point = {"action": "add", "point": True, "parameters": {"a": "9", "b": "9"}}
    assert site.post(path, point).json["added"] == 1
    unknown = site.post(path, {"action": "add", "parameters": {"c": "1"}})
    assert (unknown.status, "no parameter `c`" in unknown.json["error"]["message"]) == (400, True)
    bad = site.post(path, {"action": "add", "parameters": {"a": "f(x)"}})
    assert (bad.status, bad.json["error"]["field"]) == (400, "parameters.a")
    assert site.post(path, {"action": "add"}).status == 400
    assert [row["trial"] for row in site.ok("/api/sweeps/grid/results")["rows"]] == [1, 2, 3, 4]


def test_sweep_lists_its_possible_actions_and_explains_the_others(site: Site) -> None:
    original(site, "busy", "echo {a}", "a=1,2")
    choices = {one["action"]: one for one in site.ok("/api/sweeps/busy")["actions"]}
    problems = {action: one["problem"] for action, one in choices.items()}
    assert problems == {
        "clone": None, "extend": "The sweep already runs every point.", "add_values": None,
        "add_point": None, "resume": "Every trial has a result or a job.",
        "rerun_failed": "No trial failed.", "stop": None,
        "rm": "2 trials did not finish yet; stop the sweep first.",
    }  # fmt: skip
    assert "Cancels 2 waiting trials" in choices["stop"]["effect"]
    assert "table of 2 trials" in choices["rm"]["effect"]


def test_extension_with_an_old_number_of_trials_is_refused(site: Site) -> None:
    original(site, "random", "-m", "random", "-N", "2", "echo {a}", "a=interval(0,1)")
    body = {"action": "extend", "trials": 3, "expected": site.ok("/api/sweeps/random")["requested"]}
    path = "/api/sweeps/random/act"
    assert site.post(path, body).json["added"] == 3
    assert site.post(path, body).status == 409
    assert site.ok("/api/sweeps/random")["requested"] == 5


def test_filters_of_brushed_axes_select_the_same_trials(site: Site) -> None:
    original(site, "brushed", "--lenient", "echo", "lr=1e-7,0.01,3", "opt/name=adam,\"it's\"",
             "lambda=true,false")  # fmt: skip
    # The texts that frontend/src/parts/parallel-axes.ts writes; parallel.test.ts has the same.
    for text, count in (
        ("lr >= 1e-7 and lr <= 0.01", 8),
        ('lr <= 1e+21 and `opt/name` in ["it\'s", 3]', 6),
        ("(lr > 1 or state == 'held') and `lambda` in [True]", 6),
    ):
        found = site.ok(f"/api/sweeps/brushed/results?{urlencode({'where': text})}")
        assert found["total"] == count, text
