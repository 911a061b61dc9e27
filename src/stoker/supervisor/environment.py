"""The environment variables that Stoker adds for a job."""

from __future__ import annotations

from stoker.core.formats.limit_signal import parse_warning
from stoker.core.formats.slurm_environment import MARK, array_variables, started_variables
from stoker.core.model import Device, ReadyJob
from stoker.supervisor.logs import metrics_path, progress_path, requeue_path, stop_path


def job_environment(
    job: ReadyJob,
    number: int,
    devices: tuple[Device, ...],
    memory: int | None,
    folder: str,
    submit_dir: str,
) -> dict[str, str]:
    """CUDA's view of the devices, and Stoker's own names (see docs/environment.md)."""
    visible = ",".join(device.visible for device in devices)
    env = {
        "CUDA_VISIBLE_DEVICES": visible,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "NVIDIA_VISIBLE_DEVICES": visible or "void",
        # Not ROCR_VISIBLE_DEVICES as well: HIP would index into the GPUs that it leaves.
        "HIP_VISIBLE_DEVICES": visible,
        "STOKER_JOB_ID": str(job.id),
        "STOKER_JOB_NAME": job.name or "",
        "STOKER_ATTEMPT": str(number),
        "STOKER_GPUS": visible,
        "STOKER_GPU_UUIDS": ",".join(device.uuid for device in devices if device.uuid),
        "STOKER_SUBMIT_DIR": submit_dir,
        "STOKER_OUTPUT_DIR": folder,
        "STOKER_CHECKPOINT_DIR": f"{folder}/checkpoints",
        "STOKER_METRICS": metrics_path(folder),
        "STOKER_PROGRESS_FILE": progress_path(folder),
        "STOKER_STOP_FILE": stop_path(folder),
        "STOKER_REQUEUE_FILE": requeue_path(folder),
    }
    if memory is not None:
        env["STOKER_GPU_MEM_MIB"] = str(memory >> 20)
    if job.batch is not None:
        index = job.batch_index if job.array_index is None else job.array_index
        env["STOKER_ARRAY_ID"] = str(job.batch)
        env["STOKER_ARRAY_INDEX"] = str(index)
    if job.sweep is not None:
        env["STOKER_SWEEP_ID"] = str(job.sweep)
    if job.warn is not None:
        warning = parse_warning(job.warn)
        env["STOKER_WARN_SECONDS"] = str(warning.seconds)
        env["STOKER_WARN_SIGNAL"] = str(warning.signal)
    if job.variables:
        env.update(job.variables)
        if MARK in job.variables:
            gpus = (device.visible for device in devices)
            env |= started_variables(job.id, job.name or "", number, gpus)
        if job.array_index is not None:
            env |= array_variables(job.variables, job.batch or job.id, job.array_index)
    return env
