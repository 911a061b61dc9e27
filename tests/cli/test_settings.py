"""Every interface with a settings file that has every key."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tomllib
from collections.abc import Callable

import pytest

from stoker.settings import ContainerSettings, Settings, load_settings
from tests.lab import Lab
from tests.top.test_app import top
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


def test_python_api_works_with_every_setting(lab: Lab) -> None:
    program = "import stoker; job = stoker.submit('true'); job.wait(); print(job.state, job.id)"
    done = subprocess.run(
        [sys.executable, "-c", program], env=lab.env, text=True, capture_output=True, timeout=60
    )
    assert done.stdout == "done 1\n", done.stderr
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

    async def steps() -> None:
        async with top(lab, settings=load_settings()) as screen:
            await screen.shows("RUNNING 1")

    asyncio.run(steps())


@pytest.mark.parametrize("verb", ["status", "ls", "gpus", "doctor", "profile", "notify"])
def test_command_works_with_every_setting(lab: Lab, verb: str) -> None:
    lab.submit("true")
    done = lab.run(verb, "--json")
    assert "error" not in json.loads(done.stdout), done.stdout
