"""No-op jobs on a Slurm cluster: in chunks through Stoker, and as one plain job array."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from bench.conditions import Conditions, observed
from bench.lab import Lab
from bench.process import ToolError
from bench.report import Section
from bench.table import number, spread, table
from bench.tools.stoker import stoker_missing
from tests.engines.slurm_cluster import SlurmCluster, has_slurm
from tests.features.backends.slurm_lab import BACKEND, SlurmLab

TITLE = "No-op GPU jobs on a Slurm cluster of 3 nodes with 4 GPUs each"
HEADINGS = ("how", "jobs", "seconds (range)", "jobs/s", "ratio to the array (range)", "allocations")
_TIMEOUT = 1800.0


@dataclass(frozen=True)
class Run:
    how: str
    jobs: int
    repeat: int
    seconds: float  # from the typed command until the last job ran
    allocations: int


def measure_slurm(lab: Lab, jobs: int, repeats: int) -> Section:
    if reason := stoker_missing():
        return Section("slurm", TITLE, f"Not run: {reason}")
    if not has_slurm():
        return Section("slurm", TITLE, "Not run: needs Slurm and root")
    found: list[Run] = []
    conditions: list[Conditions] = []
    with SlurmCluster(MaxArraySize=jobs + 1) as cluster:
        cluster.wait_for_state(cluster.submit("true"), "COMPLETED")  # the first is slow
        for repeat in range(min(repeats, 3)):
            with observed(lab, repeat, conditions):
                runs = (_array, _chunks) if repeat % 2 == 0 else (_chunks, _array)
                found += [run(lab, cluster, jobs, repeat) for run in runs]
    rows = [_row(how, found) for how in ("Stoker, in chunks", "job array")]
    records = [asdict(one) for one in found]
    return Section("slurm", TITLE, table(HEADINGS, rows), records, conditions)


def _array(lab: Lab, cluster: SlurmCluster, jobs: int, repeat: int) -> Run:
    path = lab.fresh_path()
    began = time.monotonic()
    command = f"echo $SLURM_ARRAY_TASK_ID >> {path}"
    options = (f"--array=0-{jobs - 1}", "--gres=gpu:1", "--output=/dev/null")
    cluster.run("sbatch", *options, f"--wrap={command}")
    seconds = _wait(path, jobs, began)
    return Run("job array", jobs, repeat, seconds, jobs)


def _chunks(lab: Lab, cluster: SlurmCluster, jobs: int, repeat: int) -> Run:
    path = lab.fresh_path()
    slurm = SlurmLab(lab.fresh_folder(), cluster)
    try:
        slurm.ok("daemon", "start")
        began = time.monotonic()
        lines = f"echo $STOKER_JOB_ID >> {path}\n" * jobs
        slurm.ok("submit", "-q", "--on", BACKEND, "--file", "-", input=lines)
        seconds = _wait(path, jobs, began)
        slurm.finish()
        return Run("Stoker, in chunks", jobs, repeat, seconds, len(slurm.allocations()))
    finally:
        slurm.close()


def _wait(path: Path, jobs: int, began: float) -> float:
    """Wait until all jobs have written a line; returns the seconds since `began`."""
    while time.monotonic() - began < _TIMEOUT:
        lines = path.read_text().splitlines() if path.exists() else []
        if len(lines) >= jobs:
            seconds = time.monotonic() - began
            if len(set(lines)) != jobs or len(lines) != jobs:
                raise ToolError("a job ran twice")
            return seconds
        time.sleep(0.05)
    raise ToolError(f"{jobs} jobs on Slurm did not end in {_TIMEOUT:.0f} s")


def _row(how: str, found: Sequence[Run]) -> tuple[str, ...]:
    own = [one for one in found if one.how == how]
    array = {one.repeat: one.seconds for one in found if one.how == "job array"}
    seconds = [one.seconds for one in own]
    return (
        how,
        f"{own[0].jobs:,}",
        spread(seconds),
        number(own[0].jobs / median(seconds)),
        spread([array[one.repeat] / one.seconds for one in own]),
        str(round(median(one.allocations for one in own))),
    )
