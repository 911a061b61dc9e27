"""Environment variables and file name patterns for scripts with `#SBATCH` options."""

from __future__ import annotations

from collections.abc import Iterable

# The variable that marks a job as such a script.
MARK = ("SLURM_CLUSTER_NAME", "stoker")
SRUN_FOLDER = "slurm-bin"  # holds Stoker's `srun`; only on the PATH of such scripts
_NO_ARRAY = "4294967294"  # Slurm's value of %a outside of arrays


def started_variables(job: int, name: str, attempt: int, visible: Iterable[str]) -> dict[str, str]:
    """Return the variables that are known only when an attempt starts."""
    gpus = tuple(visible)
    found = {
        "SLURM_JOB_ID": str(job), "SLURM_JOBID": str(job), "SLURM_JOB_NAME": name,
        "SLURM_RESTART_COUNT": str(attempt - 1), "SLURM_GPUS_ON_NODE": str(len(gpus)),
    }  # fmt: skip
    if gpus:
        found["SLURM_JOB_GPUS"] = found["SLURM_STEP_GPUS"] = ",".join(gpus)
    return found


def expand_path(path: str, *, name: str, user: str, host: str) -> str:
    """Expand Slurm's patterns in a file name, except `%j`, which is expanded at the start.

    >>> expand_path("logs/%x-%A_%4j.%%", name="train", user="ada", host="gpu1")
    'logs/train-%j_%j.%'
    """
    values = {
        "%": "%", "j": "%j", "J": "%j", "A": "%j", "a": _NO_ARRAY, "x": name, "u": user,
        "N": host, "n": "0", "t": "0", "s": "batch", "b": "4",
    }  # fmt: skip
    parts: list[str] = []
    rest = path
    while rest:
        before, percent, rest = rest.partition("%")
        parts.append(before)
        letter = rest.lstrip("0123456789")[:1]
        if percent and letter in values and letter:
            parts.append(values[letter])
            rest = rest.lstrip("0123456789")[1:]
        elif percent:
            parts.append("%")
    return "".join(parts)
