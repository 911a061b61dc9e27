"""Whether a GPU has no compute power left."""

from __future__ import annotations

from stoker.engine.gpus.sample import GpuSample

_UTILIZATION = 98  # percent
_PART_OF_POWER = 0.9


def is_saturated(gpu: GpuSample) -> bool:
    """Whether the process on a GPU uses all of its compute power.

    Utilization alone does not tell: it is the part of time in which any kernel ran, however small.
    So power has to be near its limit, too. With several processes, neither says anything.
    """
    if gpu.utilisation is None or gpu.power is None or not gpu.power_limit:
        return False
    return gpu.utilisation >= _UTILIZATION and gpu.power >= _PART_OF_POWER * gpu.power_limit
