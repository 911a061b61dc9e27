"""The GPUs of an allocation: those that the engine gave it."""

from __future__ import annotations

import os

from stoker.engine.daemon.gpus.fixed_gpus import FixedGpus
from stoker.engine.daemon.gpus.gpus import Gpus
from stoker.engine.daemon.gpus.monitored_gpus import MonitoredGpus
from stoker.engine.devices.device_names import parse_devices, visible_names
from stoker.engine.devices.discovery import has_driver
from stoker.engine.devices.driver_client import sample_once
from stoker.settings import Settings


def worker_gpus(settings: Settings, tag_base: int, wanted: int) -> Gpus:
    """The GPUs named in CUDA_VISIBLE_DEVICES, which the engine sets; none without one.

    `wanted`: the most GPUs that a job of the chunk requests.
    """
    named = visible_names(os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    if not named or not wanted:
        return FixedGpus(())
    devices = parse_devices(named)
    if not has_driver():
        return FixedGpus(devices)
    gpus = MonitoredGpus(tag_base, settings.leases, settings.gpus_by_uuid)
    gpus.use_only({device.visible: 1 for device in devices})
    gpus.update(sample_once(), {})
    return gpus
