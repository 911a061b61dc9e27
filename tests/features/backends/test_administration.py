"""`stoker backend add`, `ls`, `test` and `rm` with a Slurm cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.engines.fake_slurm import FakeSlurm, errors
from tests.engines.slurm_cluster import SlurmCluster
from tests.features.backends.slurm_lab import BACKEND, Executions, SlurmLab
from tests.helpers import Gate
from tests.lab import Lab, wait_until

NewLab = Callable[..., SlurmLab]


def test_probe_job_shows_that_a_backend_works(slurm_lab: SlurmLab) -> None:
    printed = slurm_lab.ok("backend", "test", BACKEND)
    assert "3 nodes with 12 GPUs up" in printed
    assert "log and output folder are visible on this host" in printed
    assert "failed" not in printed


def test_folder_belongs_to_one_queue(slurm_lab: SlurmLab, new_lab: Callable[..., Lab]) -> None:
    other = new_lab(1, **slurm_lab.cluster.environment())
    words = ("backend", "add", "mine", "slurm", "--folder", str(slurm_lab.files))
    refused = other.run(*words)
    assert refused.returncode == 1
    assert "holds files of another queue" in refused.stderr
    assert str(slurm_lab.state_dir) in refused.stderr
    assert json.loads(other.ok("backend", "ls", "--json"))["backends"][1:] == []


def test_backends_of_one_queue_can_share_a_folder(slurm_lab: SlurmLab) -> None:
    gate, runs = Gate(slurm_lab.folder), Executions(slurm_lab)
    slurm_lab.ok("backend", "add", "two", "slurm", "--folder", str(slurm_lab.files))
    first = slurm_lab.submit_on(runs.command(gate.wait))
    gate.wait_for()
    second = slurm_lab.submit("--on", "two", runs.command())
    slurm_lab.wait_for(second, "done")
    gate.open()
    slurm_lab.finish()
    runs.check_once([first, second])


def test_folder_of_a_backend_stays_while_it_has_files_of_jobs(slurm_lab: SlurmLab) -> None:
    job = slurm_lab.submit_on("echo kept")
    slurm_lab.finish()
    words = ("backend", "add", BACKEND, "slurm")
    refused = slurm_lab.run(*words, "--folder", str(slurm_lab.folder / "other"))
    assert refused.returncode == 1
    assert f"the files of the jobs of `{BACKEND}` are in {slurm_lab.files}" in refused.stderr
    slurm_lab.ok("backend", "rm", BACKEND)
    slurm_lab.ok(*words)  # the default is the folder that it had
    assert slurm_lab.log(job) == "kept\n"


def test_backend_with_unfinished_jobs_is_not_removed(slurm_lab: SlurmLab) -> None:
    job = slurm_lab.submit_on("--hold", "true")
    refused = slurm_lab.run("backend", "rm", BACKEND)
    assert refused.returncode == 1
    assert "1 job of the backend `lab` has not finished" in refused.stderr
    slurm_lab.ok("cancel", str(job))
    slurm_lab.ok("backend", "rm", BACKEND)
    missing = slurm_lab.run("submit", "--on", BACKEND, "true")
    assert missing.returncode == 1
    assert f"there is no backend `{BACKEND}`" in missing.stderr


def test_partition_that_does_not_exist_is_refused(slurm_lab: SlurmLab) -> None:
    words = ("backend", "add", "other", "slurm", "--option", "partition=nope")
    refused = slurm_lab.run(*words, "--folder", str(slurm_lab.folder / "other"))
    assert refused.returncode != 0
    assert "Slurm has no partition `nope`; partitions: main" in refused.stderr
    assert "other" not in slurm_lab.ok("backend", "ls")


def test_backend_that_does_not_answer_is_not_added(
    fake_slurm: FakeSlurm, new_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    lab = new_lab(1, **fake_slurm.environment())
    fake_slurm.answer("sinfo", stderr=errors.CONTROLLER_DOWN, code=1)
    words = ("backend", "add", "lab", "slurm", "--folder", str(tmp_path / "files"))
    failed = lab.run(*words)
    assert failed.returncode != 0
    assert "Unable to contact slurm controller" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert not (tmp_path / "files").exists()
    assert json.loads(lab.ok("backend", "ls", "--json"))["backends"][1:] == []


def test_request_that_no_node_can_satisfy_is_refused_at_submit(slurm_lab: SlurmLab) -> None:
    refused = slurm_lab.run("submit", "--on", BACKEND, "--gpus", "5", "true")
    assert refused.returncode != 0
    assert "a node of the backend `lab` has at most 4 GPUs" in refused.stderr
    refused = slurm_lab.run("submit", "--on", BACKEND, "--gpu-ids", "1", "true")
    assert "Slurm chooses the GPUs" in refused.stderr
    refused = slurm_lab.run("submit", "--on", BACKEND, "--option", "array=0-3", "true")
    assert "is set by Stoker" in refused.stderr
    for flags, why in (
        (("--need", "licence=1"), "counters belong to this host"),
        (("--preemptible",), "Slurm decides which jobs give way"),
        (("--share", "mps"), "Stoker starts MPS only on this host"),
        (("--mem", "auto"), "Slurm needs the size of the memory"),
        (("--cpus", "2", "--option", "cpus-per-task=3"), "exclude each other"),
        (("--mem", "1G", "--option", "mem-per-cpu=1G"), "exclude each other"),
    ):
        refused = slurm_lab.run("submit", "--on", BACKEND, *flags, "true")
        assert refused.returncode == 2
        assert why in refused.stderr


def test_listings_do_not_grow_with_the_number_of_jobs(
    shared_slurm: SlurmCluster, new_slurm_lab: NewLab
) -> None:
    lab = new_slurm_lab(shared_slurm)
    gate = Gate(lab.folder)
    before = shared_slurm.listings()
    jobs = [lab.submit_on(gate.wait) for _ in range(12)]
    gate.wait_for(12)
    gate.open()
    wait_until(lambda: all(lab.state(job) == "done" for job in jobs))
    # Each batch asks for its token once, and polls are two or more seconds apart.
    batches = lab.rows("SELECT count(DISTINCT token) FROM allocations")[0][0]
    seconds = lab.rows("SELECT max(ended_at) - min(submitted_at) FROM jobs")[0][0]
    assert shared_slurm.listings() - before <= 2 * batches + seconds / 2 + 2
