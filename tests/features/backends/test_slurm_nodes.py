"""Jobs on several nodes, batch scripts, foreground runs and functions on a real Slurm."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

from tests.features.backends.slurm_lab import BACKEND, SlurmLab

_VARIABLES = (
    "echo $(hostname) $RANK $WORLD_SIZE $LOCAL_RANK $STOKER_NODES $MASTER_ADDR $MASTER_PORT"
    " $PET_MASTER_PORT gpus=$CUDA_VISIBLE_DEVICES"
)


def test_job_on_two_nodes_runs_once_on_each_with_its_rank(slurm_lab: SlurmLab) -> None:
    job = slurm_lab.submit_on("--nodes", "2", "--gpus", "2", _VARIABLES)
    slurm_lab.wait_for(job, "done")
    lines = sorted(
        (line.split() for line in slurm_lab.log(job).splitlines()), key=lambda line: line[1]
    )
    nodes, ports = [line[0] for line in lines], {line[6] for line in lines}
    assert len(set(nodes)) == 2 and len(ports) == 1
    port = ports.pop()
    for rank, line in enumerate(lines):
        expected = [str(rank), "2", "0", "2", nodes[0], port, port, "gpus=0,1"]
        assert line[1:] == expected


def test_job_that_fails_on_one_node_is_stopped_on_all_and_keeps_the_first_exit_code(
    slurm_lab: SlurmLab,
) -> None:
    job = slurm_lab.submit_on("--nodes", "2", "test $RANK = 1 && exit 5; sleep 600")
    slurm_lab.wait_for(job, "failed")
    assert slurm_lab.job(job)["exit_code"] == 5


def test_cancel_stops_a_job_on_all_its_nodes(slurm_lab: SlurmLab) -> None:
    marks = slurm_lab.folder / "marks"
    marks.mkdir()
    on_term = f"trap 'touch {marks}/ended-$RANK; exit' TERM"
    trap = f"{on_term}; touch {marks}/began-$RANK; sleep 600 & wait"
    job = slurm_lab.submit_on("--nodes", "2", trap)
    slurm_lab.wait_until(lambda: len(list(marks.glob("began-*"))) == 2)
    slurm_lab.ok("cancel", str(job))
    slurm_lab.wait_for(job, "cancelled")
    slurm_lab.wait_until(lambda: len(list(marks.glob("ended-*"))) == 2)


def test_time_limit_stops_a_job_on_all_its_nodes(slurm_lab: SlurmLab) -> None:
    marks = slurm_lab.folder / "marks"
    marks.mkdir()
    trap = f"trap 'touch {marks}/ended-$RANK; exit' TERM; sleep 600 & wait"
    job = slurm_lab.submit_on("--nodes", "2", "--time-limit", "3s", trap)
    slurm_lab.wait_for(job, "failed")
    assert slurm_lab.job(job)["cause"] == "time_limit"
    slurm_lab.wait_until(lambda: len(list(marks.glob("ended-*"))) == 2)


def test_job_keeps_a_master_port_of_its_own(slurm_lab: SlurmLab) -> None:
    job = slurm_lab.submit_on("--nodes", "2", "--env", "MASTER_PORT=23456", "echo $MASTER_PORT")
    slurm_lab.wait_for(job, "done")
    assert slurm_lab.log(job).split() == ["23456", "23456"]


def test_batch_script_runs_on_its_first_node_with_the_options_of_slurm(
    slurm_lab: SlurmLab, tmp_path: Path
) -> None:
    script = tmp_path / "job.sh"
    script.write_text(
        "#!/bin/sh\n"
        "#SBATCH --nodes=2 --ntasks-per-node=2 --gres=gpu:2\n"
        "#SBATCH --partition=main --cpus-per-task=2 --time=5\n"
        "echo first $SLURM_JOB_PARTITION $SLURM_NNODES $SLURM_CPUS_PER_TASK\n"
        "echo $SLURM_JOB_NAME $SLURM_SUBMIT_DIR\n"
        "srun --mpi=none sh -c 'echo task $SLURM_PROCID'\n"
    )
    job = slurm_lab.submit_on(str(script))
    slurm_lab.wait_for(job, "done")
    first, named, *tasks = slurm_lab.log(job).splitlines()
    assert first == "first main 2 2"
    assert named == f"job.sh {slurm_lab.folder}"
    assert sorted(tasks) == [f"task {number}" for number in range(4)]


def test_job_on_one_node_does_not_look_like_a_task_of_srun(slurm_lab: SlurmLab) -> None:
    """Lightning, for example, then starts a process for each GPU itself."""
    words = ("--gpus", "4", "--name", "mine", "env | grep ^SLURM | sort")
    job = slurm_lab.submit_on(*words)
    slurm_lab.wait_for(job, "done")
    found = dict(line.split("=", 1) for line in slurm_lab.log(job).splitlines())
    of_tasks = ("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS", "SLURM_PROCID", "SLURM_LOCALID")
    assert not [key for key in found if key.startswith((*of_tasks, "SLURM_STEP", "SLURM_ARRAY"))]
    assert found["SLURM_JOB_NAME"] == "mine"
    assert found["SLURM_SUBMIT_DIR"] == str(slurm_lab.folder)
    assert found["SLURM_JOB_ID"].isdigit() and found["SLURM_JOB_NODELIST"] == "n1"


def test_each_node_of_a_job_has_the_cores_that_it_reserves(slurm_lab: SlurmLab) -> None:
    job = slurm_lab.submit_on("--nodes", "2", "--cpus", "2", "echo $SLURM_CPUS_PER_TASK")
    slurm_lab.wait_for(job, "done")
    assert slurm_lab.log(job).split() == ["2", "2"]


def test_jobs_have_the_cores_that_they_reserve(slurm_lab: SlurmLab) -> None:
    """Jobs of one allocation run one after the other, because it has the cores of one."""
    busy = "busy-$SLURM_JOB_ID"
    step = f"test ! -e {busy} && touch {busy} && sleep 0.2 && rm {busy}"
    show = f"{step} && echo $SLURM_CPUS_PER_TASK $OMP_NUM_THREADS"
    file = slurm_lab.folder / "jobs.txt"
    file.write_text(f"{show}\n{show}\n{show}\n")
    flags = ("--gpus", "0", "--cpus", "2", "--mem", "64M", "--cwd", str(slurm_lab.files))
    said = slurm_lab.ok("submit", "--json", "--on", BACKEND, *flags, "--file", str(file))
    for job in json.loads(said)["jobs"]:
        slurm_lab.wait_for(job, "done")
        assert slurm_lab.log(job) == "2 2\n"


def test_foreground_run_on_a_backend_prints_output_and_returns_the_exit_code(
    slurm_lab: SlurmLab,
) -> None:
    done = slurm_lab.run("run", "--on", BACKEND, "echo from the cluster; exit 4")
    assert (done.returncode, done.stdout) == (4, "from the cluster\n")


def test_foreground_run_of_a_file_on_a_backend_counts_failed_jobs(slurm_lab: SlurmLab) -> None:
    done = slurm_lab.run("run", "--on", BACKEND, "-", input="true\nfalse\nexit 3\n")
    assert done.returncode == 2
    assert "3 of 3 jobs finished, 2 failed" in done.stderr


def test_foreground_run_on_a_backend_refuses_gpus_of_this_host(slurm_lab: SlurmLab) -> None:
    done = slurm_lab.run("run", "--on", BACKEND, "--devices", "0", "true")
    assert done.returncode == 2
    assert "`--devices` is for jobs on this host" in done.stderr


def test_python_function_on_a_backend_returns_its_result(slurm_lab: SlurmLab) -> None:
    program = slurm_lab.folder / "square.py"
    program.write_text(
        "import os, stoker\n"
        f"@stoker.job(on={BACKEND!r}, gpus=1)\n"
        "def square(x):\n"
        "    return x * x, os.environ['SLURMD_NODENAME']\n"
        "if __name__ == '__main__':\n"
        "    print([job.result() for job in square.map([2, 3])])\n"
    )
    done = subprocess.run(
        [sys.executable, str(program)], env=slurm_lab.env, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    values = ast.literal_eval(done.stdout)
    assert [value for value, _ in values] == [4, 9]
    assert {node for _, node in values} <= set(slurm_lab.cluster.node_names)
