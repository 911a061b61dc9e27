"""Usage of simulated GPUs over time, computed from what ran on them; nothing of it is stored."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from stoker.client.gpu_history import recorded_gpus
from stoker.core.formats.time_series import MEASURES, TRACKS
from stoker.core.gpus.gpu_time import Interval, cover
from stoker.core.gpus.simulated_readings import simulated_readings, steady_times
from stoker.core.gpus.simulated_use import (
    JobOnGpu,
    SimulatedUse,
    is_simulated,
    simulated_memory,
    simulated_use,
)
from stoker.core.model import Device
from stoker.daemon.status import known_devices
from stoker.settings import Settings
from stoker.store import job_queries
from stoker.store.database import Database
from stoker.store.job_labels import job_labels
from stoker.store.job_queries import JobRow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MAX_JOBS = 20_000  # whose memory is looked up


def simulated_gpu_trace(
    db: Database, settings: Settings, uuid: str, since: float, points: int
) -> dict[str, dict[str, Any]]:
    """The series of a simulated GPU, as `usage_charts.gpu_trace` has them; {} for a real one."""
    device = next((one for one in known_devices(db, settings) if one.uuid == uuid), None)
    if device is None or not is_simulated(uuid):
        return {}
    now = time.time()
    recorded = {gpu.uuid: gpu.intervals for gpu in recorded_gpus(db, settings, since, now)}
    times = steady_times(since, now, points)
    readings = device_readings(db, [device], recorded, since, now, times)
    return _series([(at, use) for _, at, use in readings])


def device_readings(
    db: Database,
    devices: Iterable[Device],
    recorded: dict[str, list[Interval]],
    since: float,
    until: float,
    times: list[float],
) -> Iterator[tuple[Device, float, SimulatedUse]]:
    """Yield what simulated GPUs did at these times, from their recorded intervals by UUID."""
    devices = list(devices)
    ids = {job for one in devices for span in recorded.get(one.uuid, ()) for job in span.jobs}
    known = {
        id: JobOnGpu(id, label.started_at or 0.0, label.claim)
        for id, label in job_labels(db, sorted(ids)[-_MAX_JOBS:]).items()
    }
    for device in devices:
        blocks = cover(recorded.get(device.uuid, ()), since, until)
        for at, use in simulated_readings(device.uuid, device.memory, blocks, known, times):
            yield device, at, use


def simulated_job_trace(
    db: Database, settings: Settings, job: int, points: int
) -> dict[str, dict[str, Any]]:
    """The use of a job's simulated GPUs, over all its attempts; {} if it had none."""
    devices = {one.number: one for one in known_devices(db, settings) if is_simulated(one.uuid)}
    row = job_queries.job(db, job)
    spans = [
        (one.started_at, one.ended_at or time.time(), [devices[number] for number in one.devices])
        for one in job_queries.attempts(db, job)
        if one.started_at is not None
        and one.node is None
        and one.devices
        and all(number in devices for number in one.devices)
    ]
    if not spans:
        return {}
    readings = []
    for at in steady_times(spans[0][0], max(end for _, end, _ in spans), points, 1.0):
        for start, end, used in spans:
            if start <= at <= end:
                readings.append((at, _of_job(JobOnGpu(job, start, row.claim), used, at)))
                break
    return _series(readings)


def simulated_job_memory(db: Database, settings: Settings, row: JobRow) -> int | None:
    """The memory that a running job seems to use on its simulated GPUs; None if it has none."""
    if not settings.devices or not row.devices or row.started_at is None:
        return None
    devices = {one.number: one for one in known_devices(db, settings) if is_simulated(one.uuid)}
    job = JobOnGpu(row.id, row.started_at, row.claim)
    sizes = [
        simulated_memory(job, devices[number].memory, time.time())
        for number in row.devices
        if number in devices
    ]
    return sum(sizes) if sizes else None


def _of_job(job: JobOnGpu, devices: list[Device], at: float) -> SimulatedUse:
    """Over several GPUs: the mean use, the highest temperature, and sums of the others."""
    uses = [simulated_use(one.uuid, one.memory, [job], at) for one in devices]
    return SimulatedUse(
        utilisation=round(sum(use.utilisation for use in uses) / len(uses)),
        memory=sum(use.memory for use in uses),
        power=sum(use.power for use in uses),
        temperature=max(use.temperature for use in uses),
    )


def _series(readings: list[tuple[float, SimulatedUse]]) -> dict[str, dict[str, Any]]:
    if not readings:
        return {}
    return {
        name: {
            "unit": MEASURES[name].unit,
            "points": [[at, use[column]] for at, use in readings],
            "simulated": True,
        }
        for column, name in enumerate(TRACKS["gpu"])
    }
