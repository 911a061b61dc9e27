"""The hint that several jobs of a command profile could share one GPU."""

from __future__ import annotations

from collections.abc import Mapping

from stoker.engine.model import Device, Request
from stoker.engine.profiles.gpu_memory import budget
from stoker.engine.profiles.shared_speed import throughput_words
from stoker.text.plurals import plural

_NO_SPEEDS: Mapping[int, float] = {}


def sharing_advice(
    request: Request,
    peak: int,
    devices: tuple[Device, ...],
    cores: int | None = None,
    speeds: Mapping[int, float] = _NO_SPEEDS,
) -> str | None:
    """Return a hint if several such jobs fit on one GPU; None if the GPU cannot be shared.

    `cores`: of the host, which its GPUs share, one for each job unless it has `--cpus`. `speeds`:
    as measured, of one job by the number of jobs on a GPU.
    """
    if not request.gpus or request.exclusive:
        return None
    measured = throughput_words(speeds)
    if request.memory is not None or request.is_auto:
        return measured
    need = budget(peak)
    count = max((device.memory // need for device in devices), default=0)
    limit = ""
    if cores is not None:
        by_cores = cores // max(1, len(devices)) // max(1, request.cpus)
        if by_cores < count:
            count = by_cores
            limit = f" with {plural(cores, 'core')} for {plural(len(devices), 'GPU')}"
    if count < 2:
        return measured
    size = f"{need >> 30}G" if need % (1 << 30) == 0 else f"{need >> 20}M"
    advice = f"{count} of these jobs fit on one GPU{limit}: add --gpu-mem {size}"
    return advice if measured is None else f"{advice}; {measured}"
