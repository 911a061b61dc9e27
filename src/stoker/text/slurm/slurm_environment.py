"""Environment variables for scripts with `#SBATCH` options."""

from __future__ import annotations

from collections.abc import Iterable

# The variable that marks a job as such a script.
MARK = ("SLURM_CLUSTER_NAME", "stoker")
_ARRAY_MARK = "SLURM_ARRAY_TASK_COUNT"  # also on a Slurm backend, whose own arrays are others
SRUN_FOLDER = "slurm-bin"  # holds Stoker's `srun`; only on the PATH of such scripts


def started_variables(job: int, name: str, attempt: int, visible: Iterable[str]) -> dict[str, str]:
    """Return the variables that are known only when an attempt starts."""
    gpus = tuple(visible)
    found = {
        "SLURM_JOB_ID": str(job),
        "SLURM_JOBID": str(job),
        "SLURM_JOB_NAME": name,
        "SLURM_RESTART_COUNT": str(attempt - 1),
        "SLURM_GPUS_ON_NODE": str(len(gpus)),
    }
    if gpus:
        found["SLURM_JOB_GPUS"] = found["SLURM_STEP_GPUS"] = ",".join(gpus)
    return found


def array_variables(variables: Iterable[tuple[str, str]], array: int, index: int) -> dict[str, str]:
    """Return the variables of one job of an array, if it is a script with `#SBATCH` options."""
    if not any(key == _ARRAY_MARK for key, _ in variables):
        return {}
    return {"SLURM_ARRAY_JOB_ID": str(array), "SLURM_ARRAY_TASK_ID": str(index)}
