"""The clusters that tests of backends run on behave as real ones do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engines.ray_cluster import RayCluster
from tests.engines.slurm_accounting import has_accounting
from tests.engines.slurm_cluster import SlurmCluster
from tests.helpers import Gate, is_alive
from tests.lab import wait_until

pytestmark = pytest.mark.release
ROOT = Path(__file__).parents[2]
NewSlurm = Callable[..., SlurmCluster]
NewRay = Callable[..., RayCluster]


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


def test_srun_starts_a_task_on_each_node(slurm: SlurmCluster) -> None:
    job = slurm.submit(
        "srun sh -c 'echo $SLURM_PROCID $(hostname) $CUDA_VISIBLE_DEVICES'",
        "--nodes=2",
        "--ntasks-per-node=1",
        "--gpus-per-node=3",
    )
    slurm.wait_for_state(job, "COMPLETED")
    assert sorted(slurm.output(job).splitlines()) == ["0 n1 0,1,2", "1 n2 0,1,2"]


def test_finished_slurm_job_leaves_the_listing_after_the_minimum_age(new_slurm: NewSlurm) -> None:
    slurm = new_slurm(MinJobAge=2)
    job = slurm.submit("true")
    slurm.wait_for_state(job, "COMPLETED")
    wait_until(lambda: slurm.state(job) == "", "the job to leave the listing")


def test_slurm_limits_are_options_of_the_cluster(new_slurm: NewSlurm) -> None:
    slurm = new_slurm(MaxArraySize=5, partitions={"main": "Default=YES MaxTime=10"})
    too_long = slurm.try_run("sbatch", "--array=0-5", "--wrap=true")
    assert too_long.returncode == 1
    assert "Invalid job array specification" in too_long.stderr
    job = slurm.submit("true", "--time=11")
    wait_until(lambda: slurm.run("squeue", "-h", "-j", job, "-o", "%r") == "PartitionTimeLimit\n")


def test_node_without_slurmd_goes_down_while_its_job_continues(slurm: SlurmCluster) -> None:
    gate = Gate(slurm.folder / "work")
    job = slurm.submit(f"{gate.wait}; touch {slurm.folder}/work/done", "-w", "n1", "--no-requeue")
    gate.wait_for()
    slurm.kill_slurmd("n1")
    wait_until(lambda: slurm.node_states()["n1"].startswith("down"), "n1 to go down")
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


def test_slurm_accounting_keeps_exit_codes_and_enforces_limits(new_slurm: NewSlurm) -> None:
    if not has_accounting():
        pytest.skip("needs slurmdbd and MariaDB")
    slurm = new_slurm(accounting=True, AccountingStorageEnforce="limits", MinJobAge=2)
    job = slurm.submit("exit 7", "--gpus-per-node=2")
    row = "sacct", "-n", "-P", "-X", "-o", "State,ExitCode", "-j", job
    # slurmctld reports to slurmdbd with a delay: `squeue` knows earlier.
    wait_until(lambda: slurm.run(*row) == "FAILED|7:0\n", "the record of the job")
    slurm.run("sacctmgr", "-i", "modify", "user", "root", "set", "MaxSubmitJobs=1")
    slurm.submit("true", "--hold")
    refused = slurm.try_run("sbatch", "--wrap=true")
    assert refused.returncode == 1
    assert "error: AssocMaxSubmitJobLimit\n" in refused.stderr
    slurm.stop_accounting()
    assert "Problem talking to the database" in slurm.try_run(*row).stderr
    slurm.start_accounting()
    assert slurm.run(*row) == "FAILED|7:0\n"


_KILLED = """
import sys, time
from tests.engines.ray_cluster import RayCluster
from tests.engines.slurm_accounting import has_accounting
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
            wait_until(lambda: len(_processes_of(folder, b"sleep\x00100")) == 2, "the job")
            assert len(_processes_of(folder)) >= 7  # munged, slurmctld, three slurmd, the job
        finally:
            test_process.send_signal(signal.SIGKILL)
        wait_until(lambda: _processes_of(folder) == [], what="end of all processes")
    subprocess.run(["rm", "-r", folder], check=True)


# -- Ray ---------------------------------------------------------------------------------------

_GPUS = """
import json, os, socket
import ray
ray.init(log_to_driver=False)

@ray.remote(num_gpus=4)
class Actor:
    def host(self):
        return socket.gethostname(), os.environ["CUDA_VISIBLE_DEVICES"]

actors = [Actor.remote() for _ in range(3)]
print(json.dumps(sorted(ray.get([actor.host.remote() for actor in actors]))))
"""

_ALIVE = """
import json
import ray
ray.init(log_to_driver=False)
print(json.dumps([node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]]))
"""


def test_ray_actors_see_the_gpus_of_their_nodes(ray: RayCluster) -> None:
    found = json.loads(ray.run_python(_GPUS).splitlines()[0])
    assert found == [[f"ray{node}", "0,1,2,3"] for node in range(3)]


def addresses(ray: RayCluster) -> list[str]:
    """The addresses of living nodes. Ray may print more lines, such as news of dead nodes."""
    found: list[str] = json.loads(ray.run_python(_ALIVE).splitlines()[0])
    return found


def test_killed_ray_node_disappears_with_its_processes(ray: RayCluster) -> None:
    node = ray.add_node()
    assert ray.node_address(node) in addresses(ray)
    pids = ray.host(node).processes()
    ray.kill_node(node)
    assert [pid for pid in pids if is_alive(pid)] == []
    wait_until(lambda: ray.node_address(node) not in addresses(ray), "the node to go")


def test_ray_refuses_a_client_without_the_token(ray: RayCluster) -> None:
    env = ray.client_environment() | {"RAY_AUTH_TOKEN": "0" * 32}
    words = [sys.executable, "-c", _ALIVE]
    failed = subprocess.run(words, env=env, capture_output=True, text=True)
    assert failed.returncode != 0
    assert "AuthenticationError" in failed.stderr


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
