"""A clone runs in the environment of the original job, which the API never returns."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.web.site import Site

SECRET = "hunter2-in-the-environment"


@pytest.fixture
def site(shared_site: Site) -> Site:
    return shared_site


def original(site: Site, *flags: str) -> int:
    """Submit a job from a terminal with another environment and folder."""
    folder = site.lab.folder / "elsewhere"
    folder.mkdir(exist_ok=True)
    words = ("submit", "-q", "--gpus", "0", *flags, "true")
    return int(site.lab.ok(*words, cwd=folder, API_KEY=SECRET))


def test_clone_has_the_environment_and_folder_of_the_original(site: Site) -> None:
    lab = site.lab
    old = original(site)
    form = {"command": 'echo "$API_KEY $MORE $(basename $PWD)"', "gpus": 0, "based_on": old}
    (new,) = site.post("/api/jobs", {**form, "env": {"MORE": 1}}).json["jobs"]
    lab.wait(new)
    assert lab.log(new) == f"{SECRET} 1 elsewhere\n"
    (other,) = site.post("/api/jobs", {**form, "cwd": str(lab.folder)}).json["jobs"]
    lab.wait(other)
    assert lab.log(other) == f"{SECRET}  {lab.folder.name}\n"
    (plain,) = site.post("/api/jobs", {"command": form["command"], "gpus": 0}).json["jobs"]
    lab.wait(plain)
    assert SECRET not in lab.log(plain)


def test_clone_copies_hidden_options_unless_the_form_sets_them(site: Site) -> None:
    old = original(site, "--time-limit", "1h", "--signal", "USR1@60", "--grace", "7")
    form = {"command": "true", "gpus": 0, "hold": True, "based_on": old, "time_limit": "1h"}
    (new,) = site.post("/api/jobs", form).json["jobs"]
    from stoker.engine.store.clone_source import clone_source_of
    from stoker.engine.store.database import open_database

    with closing(open_database(str(site.lab.state_dir))) as db:
        assert clone_source_of(db, new) == clone_source_of(db, old)
        assert clone_source_of(db, new).settings.signal == "USR1@60"
        (calm,) = site.post("/api/jobs", {**form, "grace": 3}).json["jobs"]
        assert clone_source_of(db, calm).settings.grace == 3


def test_environment_is_never_returned_by_the_api(site: Site) -> None:
    old = original(site)
    form = {"command": "true", "gpus": 0, "based_on": old, "dry_run": True}
    shown = site.post("/api/jobs", form)
    assert shown.status == 200
    assert shown.json["dry_run"][0]["cwd"].endswith("/elsewhere")
    for reply in (shown, site.get(f"/api/jobs/{old}"), site.get("/api/overview")):
        assert SECRET.encode() not in reply.body


def test_clone_of_an_unknown_job_is_refused(site: Site) -> None:
    reply = site.post("/api/jobs", {"command": "true", "gpus": 0, "based_on": 987654})
    assert (reply.status, reply.code) == (404, "not_found")
