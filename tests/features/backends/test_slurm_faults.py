"""Failures of Slurm, of nodes and of Stoker's processes: no job is lost, none runs twice."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engines.slurm_accounting import has_accounting
from tests.engines.slurm_cluster import SlurmCluster
from tests.features.backends.slurm_lab import (
    BACKEND,
    Executions,
    SlurmLab,
    set_failpoint,
    worker_pids,
)
from tests.helpers import Gate, is_alive
from tests.lab import wait_until

NewLab = Callable[..., SlurmLab]
POINTS = (
    "driver.after_files",
    "driver.after_claim",
    "driver.before_submit",
    "driver.after_submit",
    "driver.before_record",
    "driver.after_record",
)


# -- Stoker's own processes ----------------------------------------------------------------------


def test_every_job_runs_once_when_the_driver_dies_at_any_point(
    shared_slurm: SlurmCluster, new_slurm_lab: NewLab
) -> None:
    found = []
    for point in POINTS:
        lab = new_slurm_lab(shared_slurm)
        once = set_failpoint(lab, point)
        runs = Executions(lab)
        # Whole nodes, so that three allocations have four jobs.
        jobs = lab.submit_lines([runs.command()] * 4, "--gpus", "4")
        found.append((point, lab, runs, once, jobs))
    for point, lab, runs, once, jobs in found:
        lab.finish()
        assert not once.exists(), f"{point} was not passed"
        runs.check_once(jobs)
        batches = lab.files / "batches" / BACKEND
        wait_until(lambda: not os.listdir(batches), what=f"no files: {point}")  # noqa: B023


@pytest.mark.parametrize("victim", ["driver", "daemon"])
def test_jobs_continue_when_a_process_of_stoker_is_killed(slurm_lab: SlurmLab, victim: str) -> None:
    gate, runs = Gate(slurm_lab.folder), Executions(slurm_lab)
    jobs = slurm_lab.submit_lines([runs.command(gate.wait)] * 4)
    gate.wait_for(4)
    if victim == "driver":
        slurm_lab.kill_backend_driver()
    else:
        slurm_lab.kill_daemon()
    gate.open()
    slurm_lab.finish()
    runs.check_once(jobs)


def test_job_that_ends_while_no_daemon_runs_has_its_result(slurm_lab: SlurmLab) -> None:
    gate = Gate(slurm_lab.folder)
    job = slurm_lab.submit_on(f"{gate.wait}; exit 5")
    gate.wait_for()
    slurm_lab.ok("daemon", "stop")
    gate.open()
    wait_until(lambda: not worker_pids(slurm_lab.cluster), "the end of the worker")
    slurm_lab.finish()
    assert slurm_lab.job(job)["exit_code"] == 5


def test_jobs_after_a_killed_worker_run_in_another_allocation(slurm_lab: SlurmLab) -> None:
    gate, runs = Gate(slurm_lab.folder), Executions(slurm_lab)
    # Three nodes, so that each worker has four jobs.
    jobs = slurm_lab.submit_lines([runs.command(gate.wait)] * 12, "--gpus", "4")
    gate.wait_for(3)
    victim = worker_pids(slurm_lab.cluster)[0]
    os.kill(victim, signal.SIGKILL)
    gate.open()
    slurm_lab.finish()
    lost = [job for job in jobs if slurm_lab.state(job) == "lost"]
    assert len(lost) == 1  # the job that was running
    assert slurm_lab.job(lost[0])["cause"] == "lost"
    runs.check(jobs, states=("done", "lost"))
    assert sorted(job for job, _ in runs.lines()) == jobs


def test_restartable_job_of_a_killed_worker_runs_again_with_its_number(slurm_lab: SlurmLab) -> None:
    gate, runs = Gate(slurm_lab.folder), Executions(slurm_lab)
    job = slurm_lab.submit_on("--restartable", runs.command(gate.wait))
    gate.wait_for()
    os.kill(worker_pids(slurm_lab.cluster)[0], signal.SIGKILL)
    gate.wait_for(2)
    gate.open()
    slurm_lab.finish()
    assert runs.lines() == [(job, 1), (job, 2)]
    assert [one["cause"] for one in slurm_lab.job(job)["history"]] == ["lost", "exit"]


# -- the controller ------------------------------------------------------------------------------


@pytest.mark.parametrize("service", ["controller", "munge"])
def test_jobs_keep_their_states_while_slurm_does_not_answer(
    slurm_lab: SlurmLab, service: str
) -> None:
    cluster, gate = slurm_lab.cluster, Gate(slurm_lab.folder)
    runs = Executions(slurm_lab)
    running = slurm_lab.submit_on(runs.command(gate.wait))
    stopped = slurm_lab.submit_on("sleep 1000")
    slurm_lab.wait_for(running, "running")
    slurm_lab.wait_for(stopped, "running")
    if service == "controller":
        cluster.stop_controller()
    else:
        cluster.stop_munge()
    try:
        waiting = slurm_lab.submit_on(runs.command())
        wait_until(slurm_lab.problem, "the problem")
        assert "Slurm cannot be reached" in slurm_lab.ok("backend", "ls")
        assert "Slurm cannot be reached" in slurm_lab.ok("why", str(waiting))
        states = [slurm_lab.state(job) for job in (running, waiting)]
        assert states[0] == "running" and states[1] in ("queued", "submitted")
        # Running jobs are reached through files.
        slurm_lab.ok("cancel", str(stopped))
        slurm_lab.wait_for(stopped, "cancelled")
        gate.open()
        slurm_lab.wait_for(running, "done")
    finally:
        if service == "controller":
            cluster.start_controller()
        else:
            cluster.start_munge()
    slurm_lab.finish()
    runs.check_once([running, waiting])
    wait_until(lambda: slurm_lab.problem() is None, what="the end of the problem")


def test_job_that_slurm_refuses_does_not_delay_others(slurm_lab: SlurmLab) -> None:
    bad = slurm_lab.submit_on("--option", "partition=nope", "true")
    wait_until(slurm_lab.problem, what="the problem")
    good = slurm_lab.submit_on("true")
    slurm_lab.wait_for(good, "done")
    slurm_lab.wait_for(bad, "queued")  # submitted for a moment when it is tried again
    assert "invalid partition specified: nope" in slurm_lab.ok("why", str(bad))
    slurm_lab.ok("cancel", str(bad))
    wait_until(lambda: slurm_lab.problem() is None, what="the end of the problem")


_LIMITED = """#!/bin/sh
# A site that lets a user submit at most three jobs.
count=$(squeue --me -h -r -t pending,running | wc -l)
tasks=1
for word in "$@"; do
    case $word in
        --array=*-*) last=${word##*-}; tasks=$((last + 1)) ;;
    esac
done
if [ $((count + tasks)) -gt 3 ]; then
    cat > /dev/null
    echo "sbatch: error: AssocMaxSubmitJobLimit" >&2
    echo "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job \
submit limit, user's size and/or time limits)" >&2
    exit 1
fi
exec %s "$@"
"""


def test_jobs_beyond_the_submit_limit_wait_for_others(
    shared_slurm: SlurmCluster, new_slurm_lab: NewLab, tmp_path: Path
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    path = folder / "sbatch"
    path.write_text(_LIMITED % shutil.which("sbatch"))
    path.chmod(0o755)
    lab = new_slurm_lab(shared_slurm, PATH=f"{folder}:{os.environ['PATH']}")
    runs, gate = Executions(lab), Gate(lab.folder)
    jobs = [lab.submit_on(runs.command(gate.wait)) for _ in range(3)]
    jobs += lab.submit_lines([runs.command()] * 9)
    wait_until(lambda: lab.problem() is not None, what="the problem")
    assert "AssocMaxSubmitJobLimit" in str(lab.problem())
    gate.open()
    lab.finish()
    runs.check_once(jobs)


def test_arrays_are_no_longer_than_slurm_allows(
    new_slurm: Callable[..., SlurmCluster], new_slurm_lab: NewLab
) -> None:
    """Also with a controller that forgets finished jobs at once."""
    cluster = new_slurm(MaxArraySize=4, MinJobAge=2)
    lab = new_slurm_lab(cluster)
    runs = Executions(lab)
    jobs = lab.submit_lines([runs.command("sleep 0.1")] * 10)
    lab.finish()
    runs.check_once(jobs)
    arrays = {str(id).partition("_")[0] for _, id, _ in lab.allocations()}
    assert len(arrays) >= 4  # at most three tasks each
    # Allocations end and are forgotten while no driver looks.
    gate = Gate(lab.folder)
    more = [lab.submit_on(runs.command(f"{gate.wait}; exit {code}")) for code in (0, 7)]
    gate.wait_for(2)
    pid = lab.driver_pid()
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    gate.open()
    wait_until(lambda: cluster.run("squeue", "-h", "-t", "all") == "", "an empty listing")
    os.kill(pid, signal.SIGCONT)
    lab.finish()
    assert [lab.job(job)["exit_code"] for job in more] == [0, 7]


def test_allocations_respect_the_time_limit_of_the_partition(
    new_slurm: Callable[..., SlurmCluster], new_slurm_lab: NewLab
) -> None:
    cluster = new_slurm(nodes=1, partitions={"main": "Default=YES", "short": "MaxTime=2"})
    lab = new_slurm_lab(cluster, "partition=short")
    runs = Executions(lab)
    jobs = [lab.submit_on(runs.command())]
    lab.finish()  # the next ones have a known length, and share an allocation
    jobs += [*lab.submit_lines([runs.command()] * 20), lab.submit_on("-t", "2m", runs.command())]
    lab.finish()
    runs.check_once(jobs)
    long = lab.submit_on("-t", "3m", "true")
    words = "its time limit exceeds that of the partition"
    wait_until(lambda: words in lab.ok("why", str(long)), "the reason")


# -- changes from outside ------------------------------------------------------------------------


def test_scancel_of_a_running_allocation_cancels_its_job(slurm_lab: SlurmLab) -> None:
    gate = Gate(slurm_lab.folder)
    job = slurm_lab.submit_on("--restartable", "--retries", "3", gate.wait)
    pids = gate.wait_for()
    slurm_lab.cluster.run("scancel", slurm_lab.engine_ids()[0])
    slurm_lab.wait_for(job, "cancelled")
    assert slurm_lab.job(job)["cause"] == "engine_cancel"
    host = slurm_lab.cluster.host(str(slurm_lab.job(job)["node"]))
    assert host.pid_outside(pids[0]) is None


def test_scancel_of_waiting_allocations_cancels_their_jobs(slurm_lab: SlurmLab) -> None:
    cluster, gate, runs = slurm_lab.cluster, Gate(slurm_lab.folder), Executions(slurm_lab)
    blockers = [slurm_lab.submit_on("--gpus", "4", gate.wait) for _ in range(3)]
    gate.wait_for(3)
    jobs = slurm_lab.submit_lines([runs.command()] * 3, "--gpus", "4")
    wait_until(lambda: len(slurm_lab.engine_ids()) == 6, what="all allocations")
    array = slurm_lab.engine_ids()[3].partition("_")[0]
    cluster.run("scancel", f"{array}_1")  # one task
    slurm_lab.wait_for(jobs[1], "cancelled")
    assert [slurm_lab.state(job) for job in jobs] == ["submitted", "cancelled", "submitted"]
    cluster.run("scancel", array)  # the rest
    for job in jobs:
        slurm_lab.wait_for(job, "cancelled")
        assert slurm_lab.job(job)["cause"] == "engine_cancel"
    gate.open()
    slurm_lab.finish()
    assert runs.lines() == []
    assert [slurm_lab.state(job) for job in blockers] == ["done"] * 3


def test_cancel_says_that_a_job_waits_on_its_backend(slurm_lab: SlurmLab) -> None:
    gate = Gate(slurm_lab.folder)
    running = [slurm_lab.submit_on("--gpus", "4", gate.wait) for _ in range(3)]
    gate.wait_for(3)
    for job in running:
        slurm_lab.wait_for(job, "running")
    waiting = slurm_lab.submit_on("--gpus", "4", "true")
    slurm_lab.wait_for(waiting, "submitted")
    words = ("cancel", str(running[0]), str(waiting))
    assert "1 waiting job and 1 running job" in slurm_lab.ok(*words, "--dry-run")
    assert slurm_lab.ok(*words, "--yes") == (
        "1 running job stopping, 1 job waiting on a backend being cancelled\n"
    )
    for job in (running[0], waiting):
        slurm_lab.wait_for(job, "cancelled")
    gate.open()
    slurm_lab.finish()


def test_job_that_is_held_in_slurm_says_so_and_runs_after_its_release(slurm_lab: SlurmLab) -> None:
    cluster, gate = slurm_lab.cluster, Gate(slurm_lab.folder)
    blockers = [slurm_lab.submit_on("--gpus", "4", gate.wait) for _ in range(3)]
    gate.wait_for(3)
    job = slurm_lab.submit_on("--gpus", "4", "true")
    wait_until(lambda: len(slurm_lab.engine_ids()) == 4, what="the allocation")
    engine_id = slurm_lab.engine_ids()[3]
    cluster.run("scontrol", "hold", engine_id)
    gate.open()
    wait_until(lambda: "held" in slurm_lab.ok("why", str(job)), "the reason")
    assert slurm_lab.state(job) == "submitted"
    cluster.run("scontrol", "release", engine_id)
    slurm_lab.finish()
    assert [slurm_lab.state(id) for id in (*blockers, job)] == ["done"] * 4


def test_requeue_in_slurm_loses_the_running_job_and_keeps_the_rest(
    new_slurm: Callable[..., SlurmCluster], new_slurm_lab: NewLab
) -> None:
    """Also if the signal of Slurm reaches the job long before it reaches the worker."""
    cluster = new_slurm(nodes=1, gpus=1, requeue_delay=5)
    lab = new_slurm_lab(cluster)
    gate, runs = Gate(lab.folder), Executions(lab)
    jobs = lab.submit_lines([runs.command(gate.wait)] * 3)
    (inner,) = gate.wait_for()
    (worker,) = worker_pids(cluster)
    (engine_id,) = lab.wait_submitted()
    cluster.run("scontrol", "update", f"JobId={engine_id}", "Requeue=1")
    with cluster.paused_slurmd("n1"):
        cluster.run("scontrol", "requeue", engine_id)
        os.kill(cluster.host("n1").pid_outside(inner) or 0, signal.SIGTERM)
        wait_until(lambda: not is_alive(worker), "the end of the worker")
    gate.open()
    cluster.try_run("scontrol", "update", f"JobId={engine_id}", "StartTime=now")
    lab.finish()
    states = [lab.state(job) for job in jobs]
    assert states == ["lost", "done", "done"]
    assert sorted(runs.lines()) == [(job, 1) for job in jobs]


# -- nodes ---------------------------------------------------------------------------------------


def test_jobs_of_a_node_that_is_declared_down_are_lost_or_run_again(slurm_lab: SlurmLab) -> None:
    cluster, runs, gate = slurm_lab.cluster, Executions(slurm_lab), Gate(slurm_lab.folder)
    lost = slurm_lab.submit_on("--gpus", "4", runs.command(gate.wait))
    again = slurm_lab.submit_on("--gpus", "4", "--restartable", runs.command(gate.wait))
    gate.wait_for(2)
    for job in (lost, again):
        slurm_lab.wait_for(job, "running")
    nodes = [str(slurm_lab.job(job)["node"]) for job in (lost, again)]
    for node in nodes:
        cluster.down(node)
    try:
        slurm_lab.wait_for(lost, "lost")
        gate.wait_for(3)  # on the third node
        gate.open()
        slurm_lab.wait_for(again, "done")
    finally:
        for node in nodes:
            cluster.try_run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        cluster.wait_idle()
    assert sorted(runs.lines()) == [(lost, 1), (again, 1), (again, 2)]
    assert "its node failed" in str(slurm_lab.job(lost)["detail"])


def test_drained_nodes_finish_their_jobs_and_take_no_others(slurm_lab: SlurmLab) -> None:
    cluster, gate = slurm_lab.cluster, Gate(slurm_lab.folder)
    first = slurm_lab.submit_on(gate.wait)
    gate.wait_for()
    for node in cluster.node_names:
        cluster.drain(node)
    try:
        second = slurm_lab.submit_on("true")
        wait_until(lambda: "drained" in slurm_lab.ok("why", str(second)).lower(), "the reason")
        gate.open()
        slurm_lab.wait_for(first, "done")
        assert slurm_lab.state(second) == "submitted"
    finally:
        for node in cluster.node_names:
            cluster.resume(node)
    slurm_lab.wait_for(second, "done")


def test_processes_on_a_node_that_slurm_lost_are_stopped_before_they_run_twice(
    new_slurm: Callable[..., SlurmCluster], new_slurm_lab: NewLab
) -> None:
    """slurmd dies, the job and its worker continue, Slurm declares the node down."""
    cluster = new_slurm(nodes=2, gpus=1)
    lab = new_slurm_lab(cluster)
    gate, runs = Gate(lab.folder), Executions(lab)
    blocker = Gate(lab.folder, "blocker")
    jobs = lab.submit_lines([runs.command(gate.wait)] * 4, "--restartable")
    gate.wait_for(2)
    assert len(worker_pids(cluster)) == 2
    first = lab.job(jobs[0])
    lab.wait_for(jobs[0], "running")
    node = str(lab.job(jobs[0])["node"])
    old = [pid for pid in worker_pids(cluster) if pid in cluster.host(node).processes()]
    cluster.kill_slurmd(node)
    assert all(map(is_alive, old)), first
    wait_until(lambda: lab.job(jobs[0])["attempts"] == 2, "the second attempt")
    wait_until(lambda: not any(map(is_alive, old)), "the end of the old worker")
    gate.open()
    blocker.open()
    cluster.start_slurmd(node)
    lab.finish()
    runs.check(jobs)  # every execution is a recorded attempt
    assert (jobs[0], 2) in runs.lines()


def test_power_failure_of_a_node_loses_only_its_running_jobs(
    new_slurm: Callable[..., SlurmCluster], new_slurm_lab: NewLab
) -> None:
    cluster = new_slurm(nodes=2, gpus=1)
    lab = new_slurm_lab(cluster)
    gate, runs = Gate(lab.folder), Executions(lab)
    jobs = lab.submit_lines([runs.command(gate.wait)] * 6)
    gate.wait_for(2)
    for job in jobs[:2]:
        lab.wait_for(job, "running")
    node = str(lab.job(jobs[0])["node"])
    cluster.kill_node(node)
    cluster.down(node)
    gate.open()
    lab.wait_for(jobs[0], "lost")
    cluster.start_slurmd(node)
    lab.finish()
    runs.check(jobs, states=("done", "lost"))
    assert [job for job in jobs if lab.state(job) == "lost"] == [jobs[0]]
    assert sorted(job for job, _ in runs.lines()) == jobs


# -- files and workers ---------------------------------------------------------------------------


def test_vanished_folder_of_the_backend_loses_running_jobs_and_no_others(
    slurm_lab: SlurmLab,
) -> None:
    gate, runs = Gate(slurm_lab.folder), Executions(slurm_lab)
    jobs = [slurm_lab.submit_on(runs.command(gate.wait)) for _ in range(2)]
    gate.wait_for(2)
    for job in jobs:
        slurm_lab.wait_for(job, "running")
    shutil.rmtree(slurm_lab.files)
    slurm_lab.kill_backend_driver()  # also what it remembers
    for job in jobs:
        slurm_lab.wait_for(job, "lost")
    new = slurm_lab.submit_on(runs.command())
    slurm_lab.finish()
    runs.check([*jobs, new], states=("done", "lost"))
    assert slurm_lab.state(new) == "done"


def test_worker_that_cannot_start_is_a_problem_of_the_backend(
    shared_slurm: SlurmCluster, new_slurm_lab: NewLab
) -> None:
    lab = new_slurm_lab(shared_slurm, "python=/nonexistent/python")
    runs = Executions(lab)
    job = lab.submit_on(runs.command())
    wait_until(lab.problem, "the problem")
    assert "the worker did not start" in str(lab.problem())
    assert "/nonexistent/python" in lab.ok("why", str(job))
    # While it is tried again, the job is submitted and has an attempt.
    wait_until(lambda: lab.job(job)["attempts"] == 0)
    count = len(lab.allocations())
    lab.add_backend()  # with the default interpreter
    lab.finish()
    runs.check_once([job])
    assert len(lab.allocations()) <= count + 3


def test_worker_that_fails_after_taking_its_chunk_is_tried_a_few_times(
    shared_slurm: SlurmCluster, new_slurm_lab: NewLab
) -> None:
    lab = new_slurm_lab(shared_slurm)
    runs = Executions(lab)
    blocked = lab.files / "jobs"
    blocked.write_text("")  # the worker cannot create folders of jobs
    jobs = lab.submit_lines([runs.command()] * 2, "--gpus", "4")
    wait_until(lambda: "does not try again" in (lab.problem() or ""), "the last try")
    wait_until(lambda: [lab.state(job) for job in jobs] == ["queued"] * 2)
    tried = len(lab.allocations())
    assert tried <= 8  # two for each try
    problem = "the worker failed on node "
    for words in (("why", str(jobs[0])), ("ls",), ("show", str(jobs[0])), ("backend", "ls")):
        shown = lab.ok(*words, COLUMNS="500")
        assert problem in shown and "NotADirectoryError" in shown, words
    assert problem in lab.run("doctor").stdout
    assert lab.job(jobs[0])["attempts"] == 0
    assert len(lab.allocations()) == tried
    blocked.unlink()
    assert "the backend lab works" in lab.run("backend", "test", BACKEND).stderr
    lab.finish()
    runs.check_once(jobs)
    assert lab.problem() is None


def test_folder_that_nodes_do_not_see_is_named(
    shared_slurm: SlurmCluster, new_slurm_lab: NewLab
) -> None:
    lab = new_slurm_lab(shared_slurm)
    shared_slurm.hide(lab.files)
    job = lab.submit_on("true")
    wait_until(lab.problem, "the problem")
    seen = f"it wrote nothing into {lab.files}"
    assert seen in lab.ok("why", str(job))
    assert "the node probably does not see that folder" in lab.ok("backend", "ls", COLUMNS="500")
    assert seen in lab.run("doctor").stdout


# -- other kinds of clusters ---------------------------------------------------------------------


def test_preempted_job_runs_again_if_it_is_restartable(
    new_slurm: Callable[..., SlurmCluster], new_slurm_lab: NewLab
) -> None:
    cluster = new_slurm(
        nodes=1,
        gpus=2,
        PreemptType="preempt/partition_prio",
        PreemptMode="CANCEL",
        partitions={"low": "Default=YES PriorityTier=1", "high": "PriorityTier=9"},
    )
    lab = new_slurm_lab(cluster)
    gate, other, runs = Gate(lab.folder), Gate(lab.folder, "other"), Executions(lab)
    again = lab.submit_on("--restartable", runs.command(gate.wait))
    failed = lab.submit_on(runs.command(gate.wait))
    gate.wait_for(2)
    urgent = cluster.submit(other.wait, "--partition=high", "--gres=gpu:2")
    lab.wait_for(failed, "failed")
    assert lab.job(failed)["cause"] == "preempted"
    other.wait_for()
    other.open()
    gate.open()
    cluster.wait_for_state(urgent, "COMPLETED")
    lab.finish()
    assert sorted(runs.lines()) == [(again, 1), (again, 2), (failed, 1)]
    assert [one["cause"] for one in lab.job(again)["history"]] == ["preempted", "exit"]


def test_accounting_tells_how_an_allocation_ended_that_the_listing_has_forgotten(
    new_slurm: Callable[..., SlurmCluster], new_slurm_lab: NewLab
) -> None:
    if not has_accounting():
        pytest.skip("needs slurmdbd and MariaDB")
    cluster = new_slurm(nodes=1, gpus=2, MinJobAge=2, accounting=True)
    lab = new_slurm_lab(cluster)
    gate = Gate(lab.folder)
    job = lab.submit_on(gate.wait)
    gate.wait_for()
    (engine_id,) = lab.wait_submitted()
    pid = lab.driver_pid()
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    cluster.run("scancel", engine_id)
    wait_until(lambda: cluster.run("squeue", "-h", "-t", "all") == "", "an empty listing")
    os.kill(pid, signal.SIGCONT)
    lab.finish()
    assert (lab.state(job), lab.job(job)["cause"]) == ("cancelled", "engine_cancel")
