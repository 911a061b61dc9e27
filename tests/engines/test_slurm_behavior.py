"""Behavior of Slurm that a backend relies on and that is easy to assume wrongly.

The list with more of it, not tested, is in README.md.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.engines.slurm_cluster import SlurmCluster
from tests.helpers import Gate
from tests.lab import wait_until

pytestmark = pytest.mark.release
LISTING = "squeue", "--me", "-h", "-r", "-t", "all", "-o"

# Prints the names of signals; `exec` makes it the process that Slurm started.
SIGNALS = """
import signal, sys, time
def show(number, frame):
    print(signal.Signals(number).name, flush=True)
for number in (signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, show)
print("ready", flush=True)
time.sleep(1000)
"""


def listing(slurm: SlurmCluster, columns: str) -> list[str]:
    return sorted(slurm.run(*LISTING, columns).splitlines())


def test_last_task_of_a_slurm_array_keeps_the_id_of_the_array(slurm: SlurmCluster) -> None:
    job = slurm.submit("true", "--array=1-2")
    wait_until(lambda: listing(slurm, "%T") == ["COMPLETED"] * 2, "both tasks")
    ids = dict(row.split("|") for row in listing(slurm, "%i|%A"))
    assert ids[f"{job}_2"] == job
    assert ids[f"{job}_1"] != job


def test_cancelled_pending_task_leaves_the_listing_at_once(slurm: SlurmCluster) -> None:
    job = slurm.submit("true", "--array=1-3", "--hold")
    slurm.run("scancel", f"{job}_2")
    assert listing(slurm, "%i|%T") == [f"{job}_1|PENDING", f"{job}_3|PENDING"]
    slurm.run("scancel", job)
    wait_until(lambda: "PENDING" not in listing(slurm, "%T"), what="the rest of the array")
    assert listing(slurm, "%i|%T") == [f"{job}_1|CANCELLED", f"{job}_3|CANCELLED"]


def test_refused_submission_is_listed_as_a_failed_job(slurm: SlurmCluster) -> None:
    words = "sbatch", "--parsable", "--comment=tag", "--gpus-per-node=5", "--wrap=true"
    assert slurm.try_run(*words).returncode == 1
    assert listing(slurm, "%T|%r|%k") == ["FAILED|BadConstraints|tag"]


def test_name_and_comment_may_contain_the_separator(slurm: SlurmCluster) -> None:
    slurm.submit("true", "--hold", "--job-name=a|b c", "--comment=d|e")
    assert listing(slurm, "%T|%j|%k") == ["PENDING|a|b c|d|e"]


def test_signal_reaches_the_batch_process_only_with_batch_or_full(slurm: SlurmCluster) -> None:
    (slurm.folder / "work" / "signals.py").write_text(SIGNALS)
    job = slurm.submit("exec python3 signals.py", "--array=4")
    wait_until(lambda: slurm.output(job, 4) == "ready\n", "the program")
    slurm.run("scancel", "-s", "USR1", f"{job}_4")
    slurm.run("scancel", "--batch", "-s", "USR2", f"{job}_4")
    wait_until(lambda: "SIGUSR2" in slurm.output(job, 4), what="the signal")
    assert slurm.output(job, 4) == "ready\nSIGUSR2\n"


def test_requeued_job_counts_restarts_and_truncates_its_output(
    new_slurm: Callable[..., SlurmCluster],
) -> None:
    slurm = new_slurm(requeue_delay=10)
    gate = Gate(slurm.folder / "work")
    script = f'echo "restart ${{SLURM_RESTART_COUNT-none}}"; {gate.wait}'
    kept = slurm.submit(script, "--open-mode=append")
    lost = slurm.submit(script)
    gate.wait_for(2)
    slurm.run("scontrol", "requeue", f"{kept},{lost}")
    gate.wait_for(4)
    assert slurm.output(kept).splitlines()[0] == "restart none"
    assert slurm.output(kept).splitlines()[-1] == "restart 1"
    assert slurm.output(lost) == "restart 1\n"


def test_failed_rank_fails_srun_only_after_the_others_unless_told(slurm: SlurmCluster) -> None:
    script = "srun {} sh -c '[ $SLURM_PROCID = 0 ] || exit 7; {}'; echo result $?"
    two = "--nodes=2", "--ntasks-per-node=1"
    patient = slurm.submit(script.format("", "sleep 1; echo end"), *two)
    strict = slurm.submit(script.format("--kill-on-bad-exit=1", "sleep 1000"), *two)
    wait_until(lambda: all("result" in slurm.output(job) for job in (patient, strict)))
    lines = slurm.output(patient).splitlines()
    assert lines.index("end") < lines.index("result 7")
    # The code is that of the killed rank, not of the one that failed. Slurm sends it SIGTERM, and
    # SIGKILL if it has not ended then.
    assert slurm.output(strict).splitlines()[-1] in ("result 143", "result 137")
