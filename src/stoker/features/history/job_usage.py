"""What running jobs use of GPUs and host, from the usage history, and warnings about it.

`stoker show`, `stoker why` and the web UI show the same warnings.
"""

from __future__ import annotations

import time

from stoker.engine.gpus.usage_warnings import WINDOW_SECONDS, JobUsage, Requested, usage_warnings
from stoker.engine.store.job_queries import JobRow
from stoker.features.history.store_usage import read
from stoker.features.history.time_series import MEASURES, TRACKS
from stoker.record import Record
from stoker.settings import Settings
from stoker.states import STARTED
from stoker.text.sizes import format_size


class RunningUse(Record):
    """What a running job uses against its request, with warnings."""

    usage: JobUsage
    requested: Requested
    warnings: tuple[str, ...] = ()

    def gpu_memory_words(self) -> str:
        """`8.0 of 40 GiB`; "" if it is not measured."""
        used, requested = self.usage.gpu_memory, self.requested.gpu_memory
        if used is None:
            return ""
        if requested is None:
            return format_size(used)
        return f"{format_size(used)} of {format_size(requested)}"


def running_use(settings: Settings, row: JobRow, now: float | None = None) -> RunningUse | None:
    """Return what a job uses; None if it does not run on this host."""
    if row.state not in STARTED or row.started_at is None or row.request.backend:
        return None
    now = time.time() if now is None else now
    requested = requested_by(row)
    usage = _usage(settings.state_dir, row, now)
    return RunningUse(usage, requested, tuple(usage_warnings(requested, usage)))


def requested_by(row: JobRow) -> Requested:
    """What a job declared, on all its GPUs; without amounts that Stoker estimates."""
    request = row.request
    is_declared = request.memory is not None and not request.is_auto
    return Requested(
        gpus=request.gpus,
        gpu_memory=(request.memory or 0) * request.gpus if is_declared else None,
        cores=request.cpus,
        memory=None if request.is_auto_host else request.host_memory,
    )


def _usage(state_dir: str, row: JobRow, now: float) -> JobUsage:
    began = row.started_at or now
    since = max(began, now - WINDOW_SECONDS)
    gpus = _columns(state_dir, "job_gpus", row.id, since) if row.request.gpus else {}
    processes = _columns(state_dir, "job_processes", row.id, since)
    cpu = processes.get("cpu", [])
    uses = gpus.get("gpu_use", [])
    return JobUsage(
        seconds=max(0.0, now - began),
        readings=len(uses),
        gpu_memory=round(max(gpus["gpu_memory"])) if gpus.get("gpu_memory") else None,
        gpu_use=max(uses) if uses else None,
        cores=sum(cpu) / len(cpu) / 100 if cpu else None,
        memory=round(max(processes["memory"])) if processes.get("memory") else None,
    )


def _columns(state_dir: str, kind: str, job: int, since: float) -> dict[str, list[float]]:
    """The readings of a track since a time, by measure."""
    readings = [values for _, (_, values) in read(state_dir, kind, str(job), since)]
    return {
        name: [
            value * MEASURES[name].step
            for values in readings
            if (value := values[column]) is not None
        ]
        for column, name in enumerate(TRACKS[kind])
    }
