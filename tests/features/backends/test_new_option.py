"""An option that is added to the table of options, and to JobSettings, is known everywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engines.slurm_cluster import SlurmCluster
from tests.features.backends.slurm_lab import SlurmLab
from tests.helpers import Gate
from tests.lab import Lab
from tests.web.conftest import free_port
from tests.web.site import Site

# Written to a `sitecustomize` module: processes of the lab import these modules with one more line.
ADD_OPTION = """
import sys
from importlib.machinery import PathFinder, SourceFileLoader

LINES = {
    "stoker.engine.job_settings": ("    retries: int = 0\\n", "    haste: int = 0\\n"),
    "stoker.client.submit.job_options": (
        "JOB_OPTIONS = (\\n",
        "    JobOption('haste', '--haste', 'N', kinds.WHOLE, 'how urgent', in_settings=True),\\n",
    ),
}

class Loader(SourceFileLoader):
    def get_code(self, name):
        text = self.get_data(self.path).decode()
        before, line = LINES[name]
        assert text.count(before) == 1
        return self.source_to_code(text.replace(before, before + line), self.path)

class Finder:
    def find_spec(name, path=None, target=None):
        if name not in LINES:
            return None
        spec = PathFinder.find_spec(name, path)
        spec.loader = Loader(name, spec.origin)
        return spec

sys.meta_path.insert(0, Finder)
"""


@pytest.fixture
def path_with_option(tmp_path: Path) -> str:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(ADD_OPTION)
    return str(folder)


def test_new_option_is_known_to_all_interfaces(
    new_lab: Callable[..., Lab], path_with_option: str
) -> None:
    lab = new_lab(PYTHONPATH=path_with_option)
    (dry,) = json.loads(lab.ok("submit", "--dry-run", "--json", "--haste", "5", "x"))["dry_run"]
    assert dry["haste"] == 5
    assert "haste 5" in lab.ok("submit", "--dry-run", "--haste", "5", "x")

    job = lab.submit("-G0", "--haste", "5", "true")
    assert lab.wait(job) == 0
    assert lab.job(job)["haste"] == 5
    assert "haste       5\n" in lab.ok("show", str(job))
    again = json.loads(lab.ok("rerun", str(job), "--json"))["jobs"][0]
    assert lab.job(again)["haste"] == 5

    sweep = {"command": "echo {x}", "params": {"x": [1]}, "resources": {"gpus": 0, "haste": 6}}
    (lab.folder / "sweep.json").write_text(json.dumps(sweep))
    lab.ok("sweep", "-n", "s", "sweep.json")
    (trial,) = json.loads(lab.ok("ls", "--json", "sweep:s"))["jobs"]
    assert trial["haste"] == 6

    site = Site(lab, "--port", free_port())
    schemas = site.ok("/openapi.json")["components"]["schemas"]
    assert schemas["NewJob"]["properties"]["haste"]["description"] == "how urgent"
    assert schemas["Job"]["properties"]["haste"]["type"] == "integer"
    form: dict[str, Any] = {"command": "true", "gpus": 0, "haste": 7, "hold": True}
    (dry,) = site.post("/api/jobs", {**form, "dry_run": True}).json["dry_run"]
    assert dry["haste"] == 7
    (job,) = site.post("/api/jobs", form).json["jobs"]
    assert site.ok(f"/api/jobs/{job}")["job"]["haste"] == 7
    del form["haste"]
    (clone,) = site.post("/api/jobs", {**form, "based_on": job}).json["jobs"]
    assert site.ok(f"/api/jobs/{clone}")["job"]["haste"] == 7


def test_new_option_reaches_a_job_on_slurm(
    new_slurm_lab: Callable[..., SlurmLab], shared_slurm: SlurmCluster, path_with_option: str
) -> None:
    lab = new_slurm_lab(shared_slurm, PYTHONPATH=path_with_option)
    gate = Gate(lab.folder)
    job = lab.submit_on("--haste", "5", gate.wait)
    gate.wait_for()
    (chunk,) = lab.files.glob("batches/**/jobs.jsonl")
    lines = [json.loads(line) for line in chunk.read_text().splitlines()]
    (settings,) = [line["spec"]["settings"] for line in lines if line.get("job") == job]
    assert settings["haste"] == 5
    gate.open()
    lab.wait_for(job, "done")
    assert lab.job(job)["haste"] == 5


def test_option_of_a_newer_client_survives_an_older_daemon(
    new_lab: Callable[..., Lab], path_with_option: str
) -> None:
    lab = new_lab()
    lab.ok("daemon", "start")
    job = lab.submit("-G0", "-r1", "--haste", "5", "exit 3", PYTHONPATH=path_with_option)
    assert lab.wait(job) == 3
    again = json.loads(lab.ok("rerun", str(job), "--json"))["jobs"][0]
    assert lab.job(again)["haste"] == 5
    assert json.loads(lab.ok("show", "--json", str(again), PYTHONPATH=path_with_option))[
        "jobs"
    ][0]["haste"] == 5  # fmt: skip
