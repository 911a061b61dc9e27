"""Jobs from scripts with `#SBATCH` options: output files, environment variables and `srun`."""

from __future__ import annotations

import os
import sys

from stoker.engine.model import JobSpec
from stoker.errors import UsageError
from stoker.text.array_indexes import parse_array
from stoker.text.command_line import Parsed
from stoker.text.commands.output_patterns import from_slurm
from stoker.text.commands.shell_words import quote
from stoker.text.slurm.slurm_environment import MARK, SRUN_FOLDER
from stoker.text.slurm.slurm_request import Translated

_GPU_KEYS = (
    "gpus",
    "gpu_mem",
    "gpu_ids",
    "prefer",
    "gpu_model",
    "min_gpu_mem",
    "exclusive",
    "share",
)
# Kept with `--export=NONE`: few programs run without them.
_ALWAYS_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "TERM")


def slurm_defaults(path: str, own: Parsed, merged: Parsed, slurm: Translated) -> dict[str, object]:
    """Defaults that Slurm would use. `own`: options of the script; `merged`: with the command line,
    which takes precedence. Raises UsageError for an append mode that cannot be honored."""
    name = merged["name"] or os.path.basename(path)
    values: dict[str, object] = {"name": name}
    if not any(key in merged.values for key in _GPU_KEYS):
        values["gpus"] = 0  # the default of Slurm
    for key in ("stdout", "stderr"):
        if own[key] is None or merged[key] != own[key]:
            continue
        target = from_slurm(own[key], is_array=merged["array"] is not None)
        if slurm.appends and "%j" not in target and not ("%A" in target and "%a" in target):
            raise UsageError(
                f"`--open-mode=append` is not supported: each job overwrites `{target}`",
                "put %j into the path, or write `exec >> FILE` into the script",
            )
        values[key] = target
    return values


def slurm_job(spec: JobSpec, slurm: Translated, parsed: Parsed, state_dir: str) -> JobSpec:
    """Add the environment variables of Slurm to a job, and an `srun` to its PATH.

    A job for a backend keeps its environment.
    """
    env = dict(spec.context.env)
    if slurm.exported is not None:
        declared = {key for pairs in parsed["env"] or () for key, _ in pairs}
        kept = {*_ALWAYS_KEPT, *slurm.exported, *declared}
        env = {key: env[key] for key in env if key in kept or key.startswith(("LC_", "STOKER_"))}
        spec = spec._replace(context=spec.context._replace(env=tuple(sorted(env.items()))))
    if spec.array is not None:
        # Also on a Slurm backend: what it calls a job array are Stoker's allocations.
        spec = spec._replace(variables=parse_array(spec.array).variables(is_slurm=True))
    if spec.request.backend:
        return spec  # a Slurm backend sets its other variables itself
    if "SLURM_JOB_ID" in env and _has_srun(env.get("PATH", "")):
        return spec  # inside a real Slurm allocation: keep its variables and srun
    host = os.uname().nodename
    tasks = int(slurm.variables["SLURM_TASKS_PER_NODE"])
    cpus = slurm.variables.get("SLURM_CPUS_PER_TASK", "")
    on_node = str(tasks * int(cpus) if cpus.isdigit() else len(os.sched_getaffinity(0)))
    variables = dict([MARK]) | slurm.variables | {
        "SLURM_SUBMIT_DIR": os.getcwd(), "SLURM_SUBMIT_HOST": host, "SLURMD_NODENAME": host,
        "SLURM_JOB_NODELIST": host, "SLURM_NODELIST": host, "SLURM_JOB_NUM_NODES": "1",
        "SLURM_NNODES": "1", "SLURM_NODEID": "0", "SLURM_PROCID": "0", "SLURM_LOCALID": "0",
        "SLURM_CPUS_ON_NODE": on_node, "SLURM_JOB_CPUS_PER_NODE": on_node,
        "SLURM_JOB_USER": _user(), "SLURM_JOB_UID": str(os.getuid()),
        "PATH": f"{_srun_folder(state_dir)}:{env.get('PATH') or os.defpath}",
    }  # fmt: skip
    return spec._replace(variables=(*spec.variables, *variables.items()))


def _has_srun(path: str) -> bool:
    return any(
        os.access(os.path.join(folder, "srun"), os.X_OK)
        for folder in path.split(":")
        if os.path.basename(folder) != SRUN_FOLDER
    )


def _srun_folder(state_dir: str) -> str:
    """A folder that contains only `srun`. The file is replaced atomically, because a job may start
    it at the same time."""
    folder = os.path.join(state_dir, SRUN_FOLDER)
    path = os.path.join(folder, "srun")
    text = f'#!/bin/sh\nexec {quote(sys.executable)} -P -m stoker.compat.srun "$@"\n'
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            if file.read() == text:
                return folder
    except OSError:
        os.makedirs(folder, 0o700, exist_ok=True)
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    os.chmod(temporary, 0o700)
    os.replace(temporary, path)
    return folder


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return os.environ.get("USER") or str(os.getuid())
