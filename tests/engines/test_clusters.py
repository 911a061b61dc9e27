"""The clusters that tests of backends run on behave as real ones do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engines.slurm_cluster import SlurmCluster
from tests.helpers import Gate, is_alive
from tests.lab import wait_until

ROOT = Path(__file__).parents[2]
NewSlurm = Callable[..., SlurmCluster]


def test_slurm_job_sees_its_gpus_and_its_node(slurm: SlurmCluster) -> None:
    job = slurm.submit(
        'echo "$(hostname) $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"; squeue -h -o %i',
        "--gpus-per-node=2",
        "--nodelist=n2",
    )
    slurm.wait_for_state(job, "COMPLETED")
    assert slurm.output(job).split() == ["n2", "n2", "0,1", job]


def test_slurm_jobs_on_one_node_get_different_gpus(slurm: SlurmCluster) -> None:
    gate = Gate(slurm.folder / "work")
    script = f"echo $CUDA_VISIBLE_DEVICES; {gate.wait}"
    jobs = [slurm.submit(script, "--gpus-per-node=1", "--nodelist=n1") for _ in range(4)]
    gate.wait_for(4)
    assert sorted(slurm.output(job).strip() for job in jobs) == ["0", "1", "2", "3"]
    gate.open()


def test_slurm_array_tasks_have_ids_and_outputs_of_their_own(slurm: SlurmCluster) -> None:
    job = slurm.submit("echo $SLURM_ARRAY_TASK_ID", "--array=3,7", "--gpus-per-node=1")
    wait_until(lambda: slurm.output(job, 3) == "3\n" and slurm.output(job, 7) == "7\n")


@pytest.mark.slow
def test_finished_slurm_job_leaves_the_listing_after_the_minimum_age(new_slurm: NewSlurm) -> None:
    slurm = new_slurm(MinJobAge=2)
    job = slurm.submit("true")
    slurm.wait_for_state(job, "COMPLETED")
    wait_until(lambda: slurm.state(job) == "", 60, "the job to leave the listing")


def test_slurm_limits_are_options_of_the_cluster(new_slurm: NewSlurm) -> None:
    slurm = new_slurm(MaxArraySize=5, partitions={"main": "Default=YES MaxTime=10"})
    too_long = slurm.try_run("sbatch", "--array=0-5", "--wrap=true")
    assert too_long.returncode == 1
    assert "Invalid job array specification" in too_long.stderr
    job = slurm.submit("true", "--time=11")
    wait_until(lambda: slurm.run("squeue", "-h", "-j", job, "-o", "%r") == "PartitionTimeLimit\n")


@pytest.mark.slow
def test_node_without_slurmd_goes_down_while_its_job_continues(slurm: SlurmCluster) -> None:
    gate = Gate(slurm.folder / "work")
    job = slurm.submit(f"{gate.wait}; touch {slurm.folder}/work/done", "-w", "n1", "--no-requeue")
    gate.wait_for()
    slurm.kill_slurmd("n1")
    wait_until(lambda: slurm.node_states()["n1"].startswith("down"), 90, "n1 to go down")
    slurm.wait_for_state(job, "NODE_FAIL")
    gate.open()
    wait_until((slurm.folder / "work" / "done").exists, what="the job to continue")
    slurm.start_slurmd("n1")
    slurm.wait_idle()


def test_slurm_node_that_loses_power_takes_its_processes_with_it(slurm: SlurmCluster) -> None:
    gate = Gate(slurm.folder / "work")
    (slurm.folder / "work" / "daemon").write_text(gate.wait)
    slurm.submit("setsid sh daemon & sleep 1000", "--nodelist=n3")
    slurm.submit("sleep 1000", "--nodelist=n2")
    inner = gate.wait_for()[0]
    pid = slurm.host("n3").pid_outside(inner)
    assert pid is not None
    slurm.kill_node("n3")
    assert not is_alive(pid)
    assert slurm.host("n2").processes()
    slurm.start_slurmd("n3")
    assert slurm.host("n3").processes()


@pytest.mark.slow
def test_restarted_slurm_controller_keeps_the_queue(slurm: SlurmCluster) -> None:
    gate = Gate(slurm.folder / "work")
    running = slurm.submit(gate.wait)
    held = slurm.submit("true", "--hold")
    gate.wait_for()
    slurm.stop_controller()
    failed = slurm.try_run("squeue", "-h")
    assert failed.returncode == 1
    assert "Unable to contact slurm controller" in failed.stderr
    slurm.start_controller()
    assert (slurm.state(running), slurm.state(held)) == ("RUNNING", "PENDING")
    gate.open()
    slurm.wait_for_state(running, "COMPLETED")


def test_listing_fails_while_munge_is_stopped(slurm: SlurmCluster) -> None:
    slurm.stop_munge()
    failed = slurm.try_run("squeue", "-h")
    assert failed.returncode == 1
    assert "Munge encode failed" in failed.stderr
    slurm.start_munge()
    assert slurm.run("squeue", "-h") == ""


def test_drained_slurm_node_starts_no_jobs_until_it_is_resumed(slurm: SlurmCluster) -> None:
    slurm.drain("n1")
    job = slurm.submit("true", "--nodelist=n1")
    reason = "squeue", "-h", "-j", job, "-o", "%r"
    wait_until(lambda: "ReqNodeNotAvail" in slurm.run(*reason), what="the reason of the job")
    slurm.resume("n1")
    slurm.wait_for_state(job, "COMPLETED")


def test_controller_counts_listings(slurm: SlurmCluster) -> None:
    before = slurm.listings()
    for _ in range(3):
        slurm.run("squeue", "--me", "-h", "-t", "all")
    slurm.run("squeue", "-h")
    slurm.run("sinfo", "-h")
    assert slurm.listings() == before + 4


def test_two_slurm_clusters_do_not_see_each_other(new_slurm: NewSlurm) -> None:
    first, second = new_slurm(), new_slurm(nodes=1, gpus=0)
    held = first.submit("true", "--hold")
    assert first.run("squeue", "-h", "-o", "%i").split() == [held]
    assert second.run("squeue", "-h") == ""
    assert set(second.node_states()) == {"n1"}


_KILLED = """
import sys, time
from tests.engines.slurm_cluster import SlurmCluster
cluster = SlurmCluster()
print(cluster.folder, flush=True)
cluster.start()
cluster.submit("setsid sleep 1001 & sleep 1000")
time.sleep(1000)
"""


def test_slurm_cluster_ends_when_the_test_process_is_killed(slurm: SlurmCluster) -> None:
    words = [sys.executable, "-c", _KILLED]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as test_process:
        assert test_process.stdout is not None
        folder = Path(test_process.stdout.readline().strip())
        try:
            wait_until(lambda: len(_processes_of(folder, b"sleep\x00100")) == 2, 60, "the job")
            assert len(_processes_of(folder)) >= 7  # munged, slurmctld, three slurmd, the job
        finally:
            test_process.send_signal(signal.SIGKILL)
        wait_until(lambda: _processes_of(folder) == [], what="end of all processes")
    subprocess.run(["rm", "-r", folder], check=True)


def _processes_of(folder: Path, command: bytes = b"") -> list[int]:
    """PIDs of processes of the cluster in this folder, by their command or environment."""
    mark, found = os.fsencode(folder), []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path("/proc", entry, "cmdline").read_bytes()
            environ = Path("/proc", entry, "environ").read_bytes()
        except OSError:
            continue
        if mark in words + environ and words.startswith(command):
            found.append(int(entry))
    return found
