"""The heat map of the GPUs: utilization, memory or power over time, for the web UI."""

from __future__ import annotations

import math
import time

from stoker.client.gpu_history import recorded_gpus
from stoker.client.simulated_usage import device_readings
from stoker.client.timeline import MAX_GPUS, check_range
from stoker.core.formats.time_series import MEASURES, TICKS_PER_SECOND, TRACKS
from stoker.core.gpus.heat_map import column_means, mean_of
from stoker.core.gpus.simulated_use import is_simulated
from stoker.core.model import Device
from stoker.daemon.status import known_devices
from stoker.settings import Settings
from stoker.store import usage_history
from stoker.store.database import Database

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The column of a track for each measure, and its name in words.
MEASURE_COLUMNS = {"use": "gpu_use", "memory": "gpu_memory", "power": "power"}
_WORDS = {"use": "utilization", "memory": "memory in use", "power": "power"}
_SAMPLES = 4  # of a simulated GPU in each column
_WATTS = 50.0  # the power scale ends at a multiple of it


def heat_map_json(
    db: Database, settings: Settings, since: float, until: float, measure: str, columns: int
) -> dict[str, Any]:
    """Mean values of every GPU in `columns` equal parts of a range.

    Memory is in percent of each GPU's memory. Raises UsageError for a range that is empty or too
    long.
    """
    now = time.time()
    check_range(since, until, now)
    devices = [device for device in known_devices(db, settings) if device.uuid]
    left_off = max(0, len(devices) - MAX_GPUS)
    devices = devices[:MAX_GPUS]
    column = TRACKS["gpu"].index(MEASURE_COLUMNS[measure])
    simulated = _simulated_points(db, settings, devices, since, until, column, columns)
    rows = []
    for device in devices:
        points = (
            simulated[device.uuid]
            if is_simulated(device.uuid)
            else _measured_points(settings.state_dir, device.uuid, since, until, column)
        )
        if measure == "memory":
            points = [(at, 100 * value / device.memory) for at, value in points if device.memory]
        rows.append((device, column_means(points, since, until, columns)))
    values = [value for _, means in rows for value in means if value is not None]
    high = 100.0
    if measure == "power":
        high = max(_WATTS, _WATTS * math.ceil(max(values, default=0.0) / _WATTS))
    unit = "watts" if measure == "power" else "percent"
    return {
        "from": round(since, 3),
        "to": round(until, 3),
        "now": round(now, 3),
        "measure": measure,
        "unit": unit,
        "high": high,
        "left_off": left_off,
        "gpus": [_row_json(device, means, measure, unit) for device, means in rows],
    }


def _row_json(device: Device, means: list[float | None], measure: str, unit: str) -> dict[str, Any]:
    mean = mean_of(means)
    highest = max((value for value in means if value is not None), default=None)
    words = "nothing was measured"
    if mean is not None and highest is not None:
        sign = " W" if unit == "watts" else "%"
        words = f"{_WORDS[measure]} {mean:.0f}{sign} on average, {highest:.0f}{sign} at most"
    return {
        "index": device.number,
        "visible": device.visible,
        "uuid": device.uuid,
        "simulated": is_simulated(device.uuid),
        "values": [None if value is None else round(value, 1) for value in means],
        "mean": None if mean is None else round(mean, 1),
        "words": words,
    }


def _measured_points(
    folder: str, uuid: str, since: float, until: float, column: int
) -> list[tuple[float, float]]:
    step = MEASURES[TRACKS["gpu"][column]].step
    return [
        (at / TICKS_PER_SECOND, value * step)
        for _, (at, values) in usage_history.read(folder, "gpu", uuid, since)
        if (value := values[column]) is not None and at / TICKS_PER_SECOND < until
    ]


def _simulated_points(
    db: Database,
    settings: Settings,
    devices: list[Device],
    since: float,
    until: float,
    column: int,
    columns: int,
) -> dict[str, list[tuple[float, float]]]:
    """The points of simulated GPUs, by UUID."""
    some = [device for device in devices if is_simulated(device.uuid)]
    found: dict[str, list[tuple[float, float]]] = {device.uuid: [] for device in some}
    now = time.time()
    if not some or since >= now:
        return found
    recorded = {gpu.uuid: gpu.intervals for gpu in recorded_gpus(db, settings, since, now)}
    width = (until - since) / columns / _SAMPLES
    times = [at for i in range(columns * _SAMPLES) if (at := since + (i + 0.5) * width) < now]
    end = min(until, now)
    for device, at, use in device_readings(db, some, recorded, since, end, times):
        found[device.uuid].append((at, float(use[column])))
    return found
