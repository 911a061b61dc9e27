"""The context of this process for jobs that it submits: folder, environment, umask and shell."""

from __future__ import annotations

import os
from collections.abc import Iterable

from stoker.engine.model import Context
from stoker.engine.snapshot_context import SNAPSHOT_DIR, SNAPSHOT_OF, is_inside
from stoker.settings import Settings

# Variables that belong to one job; other variables with the prefix STOKER_ are settings.
_OF_ONE_JOB = (
    "STOKER_JOB_", "STOKER_ATTEMPT", "STOKER_ARRAY_", "STOKER_GPU", "STOKER_SUBMIT_DIR",
    "STOKER_OUTPUT_DIR", "STOKER_CHECKPOINT_DIR", "STOKER_METRICS", "STOKER_STOP_FILE",
    "STOKER_REQUEUE_FILE", "STOKER_PARAM", "STOKER_SWEEP", "STOKER_TRIAL", "STOKER_DEADLINE",
    "STOKER_WARN_", "STOKER_PROGRESS_FILE", "STOKER_CPU_LIST", "CUDA_MPS_",
)  # fmt: skip


def current_context(
    settings: Settings, cwd: str | None = None, extra: Iterable[tuple[str, str]] = ()
) -> Context:
    """The folder, environment, umask and shell of this process, for a job."""
    env = dict(os.environ)
    env.pop("_", None)  # set by shells to the path of `stoker`
    if SNAPSHOT_DIR in env and not is_inside(cwd or os.getcwd(), env[SNAPSHOT_DIR]):
        # Submitted by a job that runs in a snapshot, for another folder.
        env.pop(SNAPSHOT_DIR)
        env.pop(SNAPSHOT_OF, None)
    if "STOKER_JOB_ID" in env:  # submitted by a job, whose variables are not for this one
        for key in [key for key in env if key.startswith(_OF_ONE_JOB)]:
            del env[key]
        from stoker.engine.supervisor.thread_variables import remove_thread_variables
        from stoker.text.slurm.slurm_environment import MARK, SRUN_FOLDER

        remove_thread_variables(env)
        if "PET_MASTER_PORT" in env and env["PET_MASTER_PORT"] == env.get("MASTER_PORT"):
            for key in ("MASTER_ADDR", "MASTER_PORT", "PET_MASTER_ADDR", "PET_MASTER_PORT"):
                env.pop(key, None)  # of the job, from Stoker (engine/supervisor/distributed.py)
        if env.get(MARK[0]) == MARK[1]:  # set by Stoker, not by a real Slurm
            for key in [key for key in env if key.startswith(("SLURM_", "SLURMD_"))]:
                del env[key]
            folders = env.get("PATH", "").split(":")
            env["PATH"] = ":".join(f for f in folders if os.path.basename(f) != SRUN_FOLDER)
    env.update(extra)
    mask = os.umask(0o077)
    os.umask(mask)
    shell = settings.shell or env.get("SHELL") or "/bin/sh"
    if not os.access(shell, os.X_OK):
        shell = "/bin/sh"
    return Context(cwd or os.getcwd(), tuple(sorted(env.items())), mask, shell)
