"""The settings: every interface with every key, and `stoker config`."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.settings import ContainerSettings, Settings, load_settings
from tests.lab import Lab
from tests.web.conftest import free_port
from tests.web.site import Site

_EVERY_KEY = """
state_dir = "{folder}/state"
devices = 2
cpu_slots = 2
cores = 64
memory = "48G"
limits = "off"
cgroup = "{folder}/cgroup"
shell = "/bin/sh"
grace = "5s"
retry_delay = "2s"
log_limit = "1M"
allow_network_fs = true
leases = false
gpus_by_uuid = false
gpu_share = "time"
mps_idle = "10s"
bind = false
preempt_for_others = true
gpu_file = "{folder}/gpus"
backend = "local"
terminal_idle = "1h"
snapshot = "never"
snapshot_limit = "10M"
trace_seconds = 1
profile = ["small"]

[resources]
licence = 2

[notify]
when = "failure"
interval = "1m"

[notify.places.lab]
url = "command:true"

[container]
engine = "podman"
mounts = ["/data:/data"]
env = ["WANDB_*"]
options = ["--network=host"]

[profiles.small]
gpus = 1
gpu_mem = "8G"
tags = ["small"]
env = {{ A = "1" }}
"""


@pytest.fixture
def lab(new_lab: Callable[..., Lab]) -> Lab:
    """A lab whose settings are all in the file."""
    lab = new_lab()
    text = _EVERY_KEY.format(folder=lab.folder)
    assert tomllib.loads(text).keys() == set(Settings._fields), "add new settings to this file"
    assert tomllib.loads(text)["container"].keys() == set(ContainerSettings._fields)
    (lab.folder / "settings.toml").write_text(text)
    (lab.folder / "settings.toml").chmod(0o600)
    (lab.folder / "gpus").write_text("0\n1\n")
    for key in ("STATE_DIR", "CORES", "CPU_SLOTS"):
        del lab.env[f"STOKER_{key}"]
    return lab


_PYTHON_API = """
import stoker
job = stoker.submit("true")
job.wait()
print(job.state, job.id)
with stoker.Executor(2) as executor:
    print(list(executor.map(abs, [-1, -2])))
print([job.result() for job in stoker.as_completed([stoker.submit(abs, -3)])])
sweep = stoker.job(lambda x: x).sweep({"x": [1]}, metric="loss:min")
print(sweep.wait())
"""


def test_python_api_works_with_every_setting(lab: Lab) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PYTHON_API], env=lab.env, text=True, capture_output=True
    )
    assert done.stdout == "done 1\n[1, 2]\n[3]\nTrue\n", done.stderr
    assert lab.job(1)["tags"] == ["small"]


def test_web_ui_works_with_every_setting(lab: Lab) -> None:
    site = Site(lab, "--port", free_port())
    job = site.submit("true")
    lab.wait(job)
    assert site.overview()["counts"]["done"] == 1
    assert site.get(f"/api/jobs/{job}").json["job"]["tags"] == ["small"]


def test_top_works_with_every_setting(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.submit("exec sleep 600")
    for key in Settings._fields:
        monkeypatch.delenv(f"STOKER_{key.upper()}", raising=False)
    monkeypatch.setenv("STOKER_SETTINGS", lab.env["STOKER_SETTINGS"])

    top = pytest.importorskip("tests.features.top.test_app").top

    async def steps() -> None:
        async with top(lab, settings=load_settings()) as screen:
            await screen.shows("1 running")

    asyncio.run(steps())


@pytest.mark.parametrize("verb", ["status", "ls", "gpus", "doctor", "config", "profile", "notify"])
def test_command_works_with_every_setting(lab: Lab, verb: str) -> None:
    lab.submit("true")
    done = lab.run(verb, "--json")
    assert "error" not in json.loads(done.stdout), done.stdout


# -- stoker config --------------------------------------------------------------------------------


def settings_of(lab: Lab, **env: str) -> dict[str, tuple[object, str]]:
    """Value and source of each setting."""
    rows = json.loads(lab.ok("config", "--json", **env))["settings"]
    return {row["key"]: (row["value"], row["source"]) for row in rows}


def test_config_names_the_source_of_every_value(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab()
    path = lab.env["STOKER_SETTINGS"]
    assert f"settings file: {path} (does not exist)" in lab.ok("config")
    lab.ok("config", "set", "grace", "30s")
    found = settings_of(lab, STOKER_RETRY_DELAY="7")
    assert found.keys() == set(Settings._fields)
    assert found["grace"] == (30.0, path)
    assert found["retry_delay"] == (7.0, "STOKER_RETRY_DELAY")
    assert found["leases"] == (True, "default")
    assert found["state_dir"] == (str(lab.state_dir), "STOKER_STATE_DIR")
    words = [line.split() for line in lab.ok("config").splitlines()]
    assert ["grace", "30s", "file"] in words
    assert "STOKER_GRACE is set" in lab.run("config", "set", "grace", "5", STOKER_GRACE="9").stderr


def test_config_shows_no_secrets(lab: Lab) -> None:
    path = lab.folder / "settings.toml"
    path.write_text(path.read_text().replace("command:true", "https://x.org/SECRET"))
    path.write_text(path.read_text().replace('A = "1"', 'A = "SECRET"'))
    assert "SECRET" not in lab.ok("config") + lab.ok("config", "--json")


_COMMENTED = """\
# mine
grace = "5s"   # short # really
shell = "/bin/sh # not a comment"
profile = [
  "small",  # of all jobs
]

# notifications
[notify]
when = "failure"

[profiles.small] # daily
tags = ["a"]
"""


@pytest.mark.parametrize(
    ("key", "value", "old", "new"),
    [
        ("grace", "1m", 'grace = "5s"   #', 'grace = "1m"   #'),
        ("grace", "60", 'grace = "5s"   #', "grace = 60   #"),
        ("shell", "/bin/bash", '"/bin/sh # not a comment"', '"/bin/bash"'),
        ("profile", "[]", '[\n  "small",  # of all jobs\n]', "[]"),
        ("bind", "false", "]\n\n# notif", "]\nbind = false\n\n# notif"),
        ("notify.when", "end", 'when = "failure"', 'when = "end"'),
        ("notify.log_lines", "3", '"failure"\n', '"failure"\nlog_lines = 3\n'),
        ("profiles.small.gpu_mem", "8G", 'tags = ["a"]\n', 'tags = ["a"]\ngpu_mem = "8G"\n'),
        ("profiles.big.gpus", "2", "", "\n[profiles.big]\ngpus = 2\n"),
        ("resources.licence", "2", "", "\n[resources]\nlicence = 2\n"),
    ],
)
def test_config_set_keeps_the_rest_of_the_file(
    new_lab: Callable[..., Lab], key: str, value: str, old: str, new: str
) -> None:
    lab = new_lab()
    path = lab.folder / "settings.toml"
    path.write_text(_COMMENTED)
    lab.ok("config", "set", key, value)
    expected = _COMMENTED.replace(old, new) if old else _COMMENTED + new
    assert path.read_text() == expected
    settings_of(lab)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("set", "gracee", "3"), "did you mean `grace`?"),
        (("set", "grace", "never"), ""),
        (("set", "leases", "maybe"), ""),
        (("set", "profiles.small.gpu_memm", "3"), "did you mean `gpu_mem`?"),
        (("set", "notify.wen", "end"), "known: when"),
        (("set", "grace.x", "1"), "stoker config edit"),
        (("set", "profiles..x", "1"), "example"),
        (("set", "grace"), "usage: stoker config set KEY VALUE"),
        (("get", "grace"), "actions: ls, set, edit"),
    ],
)
def test_mistake_in_config_changes_nothing(
    new_lab: Callable[..., Lab], words: tuple[str, ...], hint: str
) -> None:
    lab = new_lab()
    path = lab.folder / "settings.toml"
    path.write_text(_COMMENTED)
    done = lab.run("config", *words)
    assert done.returncode == 2, done
    assert hint in done.stderr
    assert "Traceback" not in done.stderr
    assert path.read_text() == _COMMENTED


def test_form_of_the_file_that_set_cannot_change_is_refused(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab()
    path = lab.folder / "settings.toml"
    path.write_text('container = { engine = "podman" }\n')
    done = lab.run("config", "set", "container.engine", "docker")
    assert "stoker config edit" in done.stderr
    assert path.read_text() == 'container = { engine = "podman" }\n'


def test_config_edit_replaces_the_file_only_by_valid_settings(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab()
    path = lab.folder / "settings.toml"
    path.write_text(_COMMENTED)
    for wrong in ("s/5s/soon/", "s/grace/gracee/", "s/tags/tagss/", "s/\\[notify/[[notify/"):
        done = lab.run("config", "edit", EDITOR=f"sed -i '{wrong}'")
        assert done.returncode == 2, (wrong, done)
        kept = done.stderr.rpartition("your text is in ")[2].strip()
        assert Path(kept).read_text() != _COMMENTED
        Path(kept).unlink()
        assert path.read_text() == _COMMENTED
    assert "no changes" in lab.ok("config", "edit", EDITOR="true")
    assert lab.run("config", "edit", EDITOR="false").returncode != 0
    assert lab.ok("config", "edit", EDITOR="sed -i s/5s/6s/").startswith("changed grace in")
    assert path.read_text() == _COMMENTED.replace("5s", "6s")


def test_config_edit_repairs_a_damaged_file(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab()
    path = lab.folder / "settings.toml"
    path.write_text("grcae = 1\n")
    assert "did you mean `grace`?" in lab.run("ls").stderr
    lab.ok("config", "edit", EDITOR="sed -i s/grcae/grace/")
    assert settings_of(lab)["grace"] == (1.0, str(path))
