"""Profiles in the settings file: `--profile NAME`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stoker.client.settings_profiles import with_profiles
from stoker.client.submit.parsed_options import read_options
from stoker.errors import UsageError
from stoker.settings import Settings, load_settings
from tests.cli.helpers import as_json
from tests.lab import Lab

SETTINGS = """\
profile = ["night"]

[profiles.night]
priority = -5

[profiles.vision]
conda = "vision"
gpu_mem = "20G"
time_limit = "2h"
env = { A = "profile", B = "profile" }
tags = ["vision"]
exclusive = false

[profiles.boxed]
container = "image"
mount = ["/data:/data"]

[profiles.wrong]
priority = 1
gpu_memm = "20G"

[profiles.bad]
gpu_mem = "20X"
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    path = tmp_path / "settings.toml"
    path.write_text(SETTINGS)
    monkeypatch.setenv("STOKER_SETTINGS", str(path))
    return load_settings()


def values(settings: Settings, **given: Any) -> dict[str, Any]:
    return with_profiles(given, settings)


def test_profile_sets_options(settings: Settings) -> None:
    found = values(settings, profile=("vision",))
    assert found == {
        "conda": "vision", "gpu_mem": 20 << 30, "time_limit": 7200.0,
        "env": (("A", "profile"), ("B", "profile")), "tags": ("vision",),
    }  # fmt: skip


def test_options_of_the_command_override_those_of_the_profile(settings: Settings) -> None:
    found = values(
        settings, profile=("vision",), gpu_mem=1 << 30, env=(("A", "own"),), tags=("mine",)
    )
    assert found["gpu_mem"] == 1 << 30
    assert dict(found["env"]) == {"A": "own", "B": "profile"}
    assert found["tags"] == ("vision", "mine")


def test_option_replaces_what_it_excludes_in_the_profile(settings: Settings) -> None:
    assert "conda" not in values(settings, profile=("vision",), venv="/v")
    assert "gpu_mem" not in values(settings, profile=("vision",), exclusive=True)
    assert "gpu_mem" not in values(settings, profile=("vision",), gpus=0)
    assert values(settings, profile=("boxed",), conda="a") == {"conda": "a"}
    both = values(settings, profile=("boxed",), container="b", mount=("/a:/a",))
    assert both == {"container": "b", "mount": ("/a:/a",)}
    more = values(settings, profile=("boxed",), mount=("/a:/a",))
    assert more == {"container": "image", "mount": ("/data:/data", "/a:/a")}


def test_later_profile_overrides_an_earlier_one(settings: Settings) -> None:
    found = values(settings, profile=("vision", "boxed"))
    assert (found.get("conda"), found["container"], found["gpu_mem"]) == (None, "image", 20 << 30)


def test_default_profile_is_for_jobs_without_one(settings: Settings) -> None:
    assert values(settings) == {"priority": -5}
    assert "priority" not in values(settings, profile=("boxed",))


def test_unknown_profile_suggests_the_nearest(settings: Settings) -> None:
    with pytest.raises(UsageError) as error:
        values(settings, profile=("visoin",))
    assert error.value.message == "there is no profile `visoin` in the settings"
    assert error.value.hint == "did you mean `vision`?"


@pytest.mark.parametrize(
    ("name", "line", "text", "hint"),
    [
        ("wrong", 20, "`gpu_memm` is not an option of a job", "did you mean `gpu_mem`?"),
        ("bad", 23, "`gpu_mem`: `20X` is not a size", None),
    ],
)
def test_mistake_in_a_profile_names_its_line(
    settings: Settings, tmp_path: Path, name: str, line: int, text: str, hint: str | None
) -> None:
    with pytest.raises(UsageError) as error:
        values(settings, profile=(name,))
    place = f"`[profiles.{name}]` in `{tmp_path}/settings.toml`, line {line}"
    assert error.value.message.startswith(f"{place}: {text}")
    assert hint is None or error.value.hint == hint


def test_python_uses_profiles(settings: Settings) -> None:
    found = read_options({"profile": "boxed", "gpus": 2})
    assert (found.environment["container"], found.request.gpus) == ("image", 2)
    assert read_options({"profile": ["night", "boxed"]}).fields["priority"] == -5


def test_commands_job_files_and_sweeps_use_profiles(lab: Lab) -> None:
    (lab.folder / "settings.toml").write_text(
        '[profiles.a]\npriority = 3\ntags = "x"\n[profiles.b]\ntime_limit = "1h"\n'
    )
    job = lab.submit("--hold", "--profile", "a", "--profile", "b", "true")
    facts = lab.job(job)
    assert (facts["priority"], facts["tags"], facts["time_limit"]) == (3, ["x"], 3600.0)
    jobs = "true\ntrue  #stoker --profile b --priority 7\n"
    lab.ok("submit", "--hold", "--profile", "a", "-f", "-", input=jobs)
    rows = [lab.job(id) for id in (job + 1, job + 2)]
    assert [(row["priority"], row["time_limit"]) for row in rows] == [(3, None), (7, 3600.0)]
    lab.ok("sweep", "--hold", "--profile", "b", "true {x}", "x=1")
    assert lab.job(job + 3)["time_limit"] == 3600.0
    shown = lab.ok("profile")
    assert [line.split() for line in shown.splitlines()] == [
        ["NAME", "OPTIONS"], ["a", "priority=3", "tags=x"], ["b", "time_limit=1h"],
    ]  # fmt: skip
    (profile,) = as_json(lab.ok("profile", "show", "b", "--json"))["profiles"]
    assert profile == {"name": "b", "default": False, "options": {"time_limit": "1h"}}


def test_foreground_run_uses_a_profile(lab: Lab) -> None:
    (lab.folder / "settings.toml").write_text('[profiles.a]\nenv = { NAME = "value" }\n')
    (lab.folder / "jobs.txt").write_text("echo $NAME > out\n")
    lab.ok("run", "--profile", "a", "jobs.txt")
    assert (lab.folder / "out").read_text() == "value\n"
