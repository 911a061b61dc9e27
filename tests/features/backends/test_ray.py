"""Jobs on Ray: placement, lost nodes, other users, and nodes that do not share files.

What is the same on all backends is in test_contract.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.engine.supervisor.logs import job_folder, progress_path, stop_path
from tests.engines.ray_cluster import RayCluster
from tests.features.backends.ray_lab import RayLab
from tests.features.backends.slurm_lab import BACKEND, Executions, check_trial_files
from tests.helpers import Gate, is_alive
from tests.lab import Lab, wait_until

NewRayLab = Callable[..., RayLab]


@pytest.fixture(scope="module")
def cluster(_shared_ray: RayCluster) -> Iterator[RayCluster]:
    yield _shared_ray
    _shared_ray.clean()


@pytest.fixture(scope="module")
def new_ray_lab(
    cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NewRayLab]:
    """A function that creates labs with the cluster as their backend `lab`."""
    labs: list[RayLab] = []

    def make(*options: str, **env: Any) -> RayLab:
        folder = tmp_path_factory.mktemp("ray") / "lab"
        folder.mkdir()
        # Other tests need the GPUs.
        labs.append(RayLab(folder, cluster, "idle=4", *options, **env))
        return labs[-1]

    yield make
    for lab in labs:
        lab.close()


@pytest.fixture(scope="module")
def ray_lab(new_ray_lab: NewRayLab) -> RayLab:
    return new_ray_lab()


@pytest.fixture(scope="module")
def unshared_lab(new_ray_lab: NewRayLab, cluster: RayCluster) -> RayLab:
    """A lab whose files are copied to nodes and back; nodes do not see its state folder."""
    lab = new_ray_lab("shared=no", "max-size=20K", STOKER_RETRY_DELAY="0.1")
    for node in cluster.nodes():
        cluster.host(node).hide(lab.state_dir)
    return lab


# The folder that all nodes have: the folder of a lab is large, and changes all the time.
_ROOT = ("--cwd", "/")


_FREE = """
import time, ray
ray.init(log_to_driver=False)
while ray.available_resources().get("GPU") != ray.cluster_resources().get("GPU"):
    time.sleep(0.1)
"""


def _hold(gpus: int) -> str:
    """A program of another Ray user that takes GPUs on all three nodes."""
    return f"""
import ray
ray.init(log_to_driver=False, namespace="other")
Actor = ray.remote(num_gpus={gpus})(type("Actor", (), {{"ready": lambda self: 1}}))
for number in range(3):
    handle = Actor.options(lifetime="detached", name=f"other{{number}}",
                           scheduling_strategy="SPREAD").remote()
    ray.get(handle.ready.remote())
"""


def _kill_actors(prefix: str) -> str:
    return f"""
import ray
ray.init(log_to_driver=False)
for actor in ray.util.list_named_actors(all_namespaces=True):
    if actor["name"].startswith("{prefix}"):
        ray.kill(ray.get_actor(actor["name"], namespace=actor["namespace"]))
"""


def _reason(lab: Lab, job: int) -> str:
    return lab.ok("why", str(job))


# -- the cluster -----------------------------------------------------------------------------------


def test_nodes_of_the_cluster_decide_which_requests_are_possible(ray_lab: RayLab) -> None:
    shown = ray_lab.ok("gpus", "--on", "lab")
    assert all(name in shown for name in ("ray0", "ray1", "ray2"))
    for words in (["--gpus", "5"], ["--nodes", "4"], ["--gpus", "1", "--gpu-model", "H100"]):
        refused = ray_lab.run("submit", "--on", "lab", *words, "true")
        assert refused.returncode == 65, words
        assert "`lab`" in refused.stderr
    refused = ray_lab.run("submit", "--on", "lab", "--gpu-ids", "0", "true")
    assert refused.returncode == 2
    assert "GPU indices differ from node to node" in refused.stderr
    for flags in (
        ("--cpus", "2"), ("--mem", "1G"), ("--mem", "auto"), ("--need", "a=1"), ("--preemptible",),
    ):  # fmt: skip
        refused = ray_lab.run("submit", "--on", "lab", *flags, "true")
        assert refused.returncode == 2
        assert "is not possible on `lab`" in refused.stderr


def test_wrong_addresses_and_tokens_are_named(
    new_lab: Callable[..., Lab], cluster: RayCluster
) -> None:
    lab = new_lab()
    token = lab.folder / "token"

    def add(address: str) -> subprocess.CompletedProcess[str]:
        return lab.run("backend", "add", "lab", "ray", "--option", f"address={address}", *more)

    more: tuple[str, ...] = ()
    refused = add("127.0.0.1:1")
    assert refused.returncode == 69
    assert "nothing answers at 127.0.0.1:1: Connection refused" in refused.stderr
    client = add("ray://127.0.0.1:10001")
    assert client.returncode == 2
    assert "Ray client" in client.stderr
    missing = add(cluster.address)
    assert missing.returncode == 69
    assert f"Ray at {cluster.address} requires a token" in missing.stderr
    more = ("--option", f"token-file={token}")
    assert f"cannot read the token file `{token}`" in add(cluster.address).stderr
    token.write_text("0" * 32)
    wrong = add(cluster.address)
    assert wrong.returncode == 69
    assert f"refuses the token in `{token}`" in wrong.stderr
    token.write_text(cluster.environment()["RAY_AUTH_TOKEN"] + "\n")
    assert add(cluster.address).returncode == 0
    assert json.loads(lab.ok("backend", "ls", "--json"))["backends"][1]["nodes"]


def test_jobs_wait_while_the_cluster_cannot_be_reached(
    new_ray_lab: NewRayLab, cluster: RayCluster, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(cluster.environment()["RAY_AUTH_TOKEN"])
    lab = new_ray_lab(f"token-file={token}")
    token.write_text("0" * 32)
    job = lab.submit_on("--gpus", "0", "true")
    wait_until(lambda: "refuses the token" in (lab.problem() or ""), "the problem")
    assert "refuses the token" in _reason(lab, job)
    assert lab.state(job) == "queued"
    token.write_text(cluster.environment()["RAY_AUTH_TOKEN"])
    assert lab.wait(job) == 0
    # What Ray prints is not in the log of the daemon: only the problem.
    assert "gcs_client" not in lab.daemon_log()


def test_node_without_stoker_is_not_used(new_ray_lab: NewRayLab) -> None:
    lab = new_ray_lab("python=/usr/bin/true")
    job = lab.submit_on("true")
    wait_until(lambda: "`/usr/bin/true` has another version of Stoker" in _reason(lab, job))
    assert lab.state(job) == "submitted"
    lab.ok("cancel", str(job))
    lab.wait_for(job, "cancelled")


# -- GPUs ------------------------------------------------------------------------------------------


def test_two_queues_never_use_a_gpu_at_the_same_time(
    new_ray_lab: NewRayLab, tmp_path: Path
) -> None:
    labs = [new_ray_lab(), new_ray_lab()]
    locks = tmp_path / "locks"
    locks.mkdir()
    script = (
        'for gpu in $(echo "$CUDA_VISIBLE_DEVICES" | tr , " "); do '
        f'mkdir "{locks}/$(hostname)-$gpu" || exit 9; done; sleep 0.2; '
        'for gpu in $(echo "$CUDA_VISIBLE_DEVICES" | tr , " "); do '
        f'rmdir "{locks}/$(hostname)-$gpu"; done'
    )
    jobs = {}
    for lab in labs:
        jobs[lab] = lab.submit_lines([script] * 8, "--gpus", "1")
        jobs[lab] += lab.submit_lines([script] * 2, "--gpus", "3")
        jobs[lab] += lab.submit_lines([script], "--gpus", "4")
    for lab in labs:
        assert lab.wait() == 0, (lab.states(), lab.daemon_log())
        assert set(lab.states().values()) == {"done"}


def test_gpus_of_other_ray_users_are_not_used(new_ray_lab: NewRayLab, cluster: RayCluster) -> None:
    cluster.run_python(_hold(3))
    lab = new_ray_lab()
    small = lab.submit_on("--gpus", "1", "echo $CUDA_VISIBLE_DEVICES")
    large = lab.submit_on("--gpus", "2", "true")
    assert lab.wait(small) == 0
    assert lab.log(small).strip() in ("0", "3")
    wait_until(lambda: "waits for a node with 2 free GPUs" in _reason(lab, large), "a reason")
    cluster.run_python(_kill_actors("other"))
    assert lab.wait(large) == 0
    # Nothing is left: GPUs return to Ray when they are idle.
    cluster.run_python(_FREE)


# -- failures --------------------------------------------------------------------------------------


def test_jobs_survive_a_killed_daemon(ray_lab: RayLab) -> None:
    lab, ran = ray_lab, Executions(ray_lab)
    gate = Gate(lab.folder, "daemon")
    running = [lab.submit_on("--gpus", "1", ran.command(gate.wait)) for _ in range(2)]
    alone = lab.submit_on("--gpus", "0", ran.command(gate.wait))
    gate.wait_for(3)
    lab.kill_backend_driver()
    lab.kill_daemon()
    later = lab.submit_lines([ran.command()] * 20, "--gpus", "1")
    gate.open()
    lab.finish()
    ran.check_once([*running, alone, *later])


def test_lost_node_ends_jobs_and_restartable_ones_run_elsewhere(
    unshared_lab: RayLab, cluster: RayCluster
) -> None:
    lab, gate = unshared_lab, Gate(unshared_lab.folder, "lost")
    blockers = [lab.submit_on(*_ROOT, "--gpus", "4", gate.wait) for _ in range(3)]
    gate.wait_for(3)
    node = cluster.add_node()
    saved = "$STOKER_CHECKPOINT_DIR/saved"
    script = f"[ -e {saved} ] && exit; echo 1 > {saved}; {gate.wait}; exit 9"
    restartable = lab.submit_on(*_ROOT, "--gpus", "2", "--restartable", script)
    plain = lab.submit_on(*_ROOT, "--gpus", "2", "--retries", "0", gate.wait)
    gate.wait_for(5)
    name = f"ray{node}"
    for job in (plain, restartable):
        lab.wait_for(job, "running")
        assert lab.job(job)["node"] == name
    checkpoint = Path(job_folder(str(lab.state_dir), restartable), "checkpoints", "saved")
    wait_until(checkpoint.exists, "the copy of the checkpoint")
    cluster.kill_node(node)
    lab.wait_for(plain, "lost", "failed")
    found = lab.job(plain)
    assert (found["state"], found["cause"]) == ("lost", "lost")
    assert "its node failed" in found["detail"]
    wait_until(lambda: lab.state(restartable) in ("queued", "submitted"), "the job to wait")
    gate.open()
    assert lab.wait(restartable, *blockers) == 0
    again = lab.job(restartable)
    assert (again["attempts"], again["history"][0]["cause"]) == (2, "lost")
    assert again["node"] != name


def test_job_ends_with_the_actor_of_its_node(ray_lab: RayLab, cluster: RayCluster) -> None:
    lab, gate = ray_lab, Gate(ray_lab.folder, "actor")
    job = lab.submit_on(f"echo $$; {gate.wait}")
    gate.wait_for()
    cluster.run_python(_kill_actors("stoker-"))
    lab.wait_for(job, "lost")
    assert "the Stoker actor on its node ended" in lab.job(job)["detail"]
    mark = os.fsencode(f"STOKER_JOB_ID={job}\0"), os.fsencode(str(lab.state_dir))
    wait_until(lambda: not _processes_with(*mark), what="the end of the processes of the job")


def _processes_with(*marks: bytes) -> list[str]:
    """PIDs of processes whose environment has these texts."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            environ = Path("/proc", entry, "environ").read_bytes()
        except OSError:
            continue
        if all(mark in environ for mark in marks) and is_alive(int(entry)):
            found.append(entry)
    return found


# -- several nodes ---------------------------------------------------------------------------------


def test_job_on_several_nodes_has_the_environment_of_torchrun(ray_lab: RayLab) -> None:
    lab = ray_lab
    script = (
        'echo "$RANK/$WORLD_SIZE $LOCAL_RANK $STOKER_NODE_RANK/$STOKER_NODES'
        ' $CUDA_VISIBLE_DEVICES $MASTER_ADDR:$MASTER_PORT $(hostname)"'
    )
    job = lab.submit_on("--nodes", "3", "--gpus", "2", script)
    assert lab.wait(job) == 0
    first, *others = lab.log(job).splitlines()
    words = [first.split(), *(line.split()[1:] for line in others)]
    assert [one[:4] for one in words] == [[f"{k}/3", "0", f"{k}/3", "0,1"] for k in range(3)]
    assert len({one[4] for one in words}) == 1
    hosts = [one[5] for one in words]
    assert sorted(hosts) == ["ray0", "ray1", "ray2"]
    assert [line.split()[0] for line in others] == [f"[{host}]" for host in hosts[1:]]
    assert lab.job(job)["node"] == ",".join(hosts)


def test_failing_process_stops_the_others_and_is_the_result_of_the_job(ray_lab: RayLab) -> None:
    lab, gate = ray_lab, Gate(ray_lab.folder, "ranks")
    script = f'[ "$RANK" = 0 ] || {{ until [ -e {gate.path} ]; do sleep 0.02; done; exit 7; }}; '
    failing = lab.submit_on("--nodes", "2", "--gpus", "1", script + gate.wait + "; sleep 1000")
    cancelled = lab.submit_on("--nodes", "2", "--gpus", "2", "sleep 1000")
    gate.wait_for()
    gate.open()
    lab.wait_for(failing, "failed")
    assert (lab.job(failing)["exit_code"], lab.job(failing)["cause"]) == (7, "exit")
    lab.wait_for(cancelled, "running")
    lab.ok("cancel", str(cancelled))
    lab.wait_for(cancelled, "cancelled")


# -- nodes that do not share files -----------------------------------------------------------------

_PROJECT = """
import os, pathlib, sys, time
import helper
import stoker
print(sorted(set(os.listdir(".")) - {"__pycache__"}), helper.VALUE, flush=True)
out = pathlib.Path(os.environ["STOKER_OUTPUT_DIR"])
(out / "sub").mkdir(parents=True)
(out / "sub" / "big.bin").write_bytes(b"x" * 10_000_000)
(out / "link").symlink_to("sub")
stoker.log(loss=0.5, step=1)
pathlib.Path(os.environ["STOKER_PROGRESS_FILE"]).write_text("50%")
print("waits", flush=True)
while not os.path.exists(os.environ["STOKER_STOP_FILE"]):
    time.sleep(0.02)
stoker.log(loss=0.25, step=2)
print("stopped")
"""


def _project(folder: Path) -> Path:
    """A git repository with a program, and a folder that git ignores."""
    project = folder / "project"
    (project / "data").mkdir(parents=True)
    (project / "data" / "ignored").write_text("x")
    (project / ".gitignore").write_text("data/\n")
    (project / "main.py").write_text(_PROJECT)
    (project / "helper.py").write_text("VALUE = 41\n\n\ndef double(x):\n    return 2 * x\n")
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    return project


_FUNCTION = """
import helper, stoker, sys
job = stoker.job(helper.double, on="lab", gpus=0).submit(21)
print(job.result())
"""


def test_files_of_jobs_travel_to_a_node_that_does_not_share_them_and_back(
    new_ray_lab: NewRayLab, cluster: RayCluster, tmp_path: Path
) -> None:
    lab = new_ray_lab()
    project, gate = _project(lab.folder), Gate(tmp_path)
    blockers = [lab.submit_on("--gpus", "4", gate.wait) for _ in range(3)]
    gate.wait_for(3)
    node = cluster.add_node(lab.folder)  # it sees neither the project nor the state folder
    job = int(
        lab.ok("submit", "-q", "--on", "lab", "--gpus", "2", sys.executable, "main.py", cwd=project)
    )
    folder = job_folder(str(lab.state_dir), job)
    # Log, metrics and progress arrive while the job runs.
    wait_until(lambda: "waits" in lab.log(job) if lab.job(job)["attempts"] else False, "its log")
    wait_until(lambda: lab.job(job)["node"] == f"ray{node}", "the record of its start")
    assert "['.gitignore', 'helper.py', 'main.py'] 41" in lab.log(job)
    wait_until(lambda: os.path.exists(progress_path(folder)), "its progress")
    wait_until(lambda: "0.5" in lab.ok("results", str(job)), "its metrics")
    Path(stop_path(folder)).touch()  # as for a trial that is stopped early
    assert lab.wait(job) == 0
    assert lab.log(job).splitlines()[-1] == "stopped"
    assert "0.25" in lab.ok("results", str(job))
    assert Path(folder, "sub", "big.bin").stat().st_size == 10_000_000
    assert os.readlink(Path(folder, "link")) == "sub"
    gate.open()
    assert lab.wait(*blockers) == 0
    cluster.kill_node(node)


def test_outputs_of_trials_return_without_shared_files(unshared_lab: RayLab) -> None:
    lab = unshared_lab
    command = (
        "echo {x} > $STOKER_OUTPUT_DIR/m; echo {x} > {dir}/d; mkdir -p $STOKER_CHECKPOINT_DIR;"
        " echo {x} > $STOKER_CHECKPOINT_DIR/c"
    )
    cwd = lab.folder / "empty"
    cwd.mkdir()
    lab.ok("sweep", "-q", "-n", "trials", "--on", BACKEND, command, "x=1,2", cwd=cwd)
    lab.ok("wait", "-q", "sweep:trials")
    check_trial_files(lab, "trials")


def test_functions_retries_and_output_files_work_without_shared_files(
    unshared_lab: RayLab, tmp_path: Path
) -> None:
    lab, project = unshared_lab, _project(tmp_path)
    script = (
        'echo "attempt $STOKER_ATTEMPT"; echo "{}" >> $STOKER_METRICS; '
        "[ -e $STOKER_CHECKPOINT_DIR/saved ] || { echo 1 > $STOKER_CHECKPOINT_DIR/saved; exit 3; }"
    )
    output = lab.folder / "out" / "%j.txt"
    job = lab.submit_on(*_ROOT, "--gpus", "0", "--retries", "1", "-o", str(output), script)
    called = subprocess.run(
        [sys.executable, "-c", _FUNCTION], env=lab.env, cwd=project, text=True, capture_output=True
    )
    assert called.stdout == "42\n", called.stderr
    assert lab.wait(job) == 0
    assert lab.job(job)["attempts"] == 2
    assert (lab.folder / "out" / f"{job}.txt").read_text() == "attempt 1\nattempt 2\n"
    quiet = lab.submit_lines(["true"] * 300, *_ROOT, "--gpus", "0")
    assert lab.wait(*quiet) == 0
    assert lab.log(quiet[0]) == ""


def test_folder_that_is_too_large_is_not_sent(unshared_lab: RayLab, tmp_path: Path) -> None:
    lab, project = unshared_lab, _project(tmp_path)
    (project / "large").write_bytes(b"x" * 20_000)
    job = int(lab.ok("submit", "-q", "--on", "lab", "--gpus", "0", "true", cwd=project))
    lab.wait_for(job, "failed")
    found = lab.job(job)
    assert found["cause"] == "start_failed"
    assert f"the folder `{project}` has more than 20 KiB" in found["detail"], found["detail"]
    assert "max-size" in found["detail"]
