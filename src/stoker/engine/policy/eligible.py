"""Which devices qualify for a request, whatever runs on them."""

from __future__ import annotations

from collections.abc import Iterable

from stoker.engine.model import Device, Request
from stoker.engine.profiles.gpu_memory import without_margin


def is_eligible(request: Request, device: Device) -> bool:
    """Whether the device, if idle, qualifies for one of the job's GPUs."""
    if request.memory is not None and _least_memory(request.memory, request) > device.memory:
        return False
    if request.min_memory is not None and request.min_memory > device.memory:
        return False
    if request.model is not None and request.model.lower() not in device.model.lower():
        return False
    return not request.ids or is_named(device, request.ids)


def _least_memory(memory: int, request: Request) -> int:
    return without_margin(memory) if request.is_auto else memory


def is_named(device: Device, names: Iterable[str]) -> bool:
    """Whether one of the names denotes this device: an index, a UUID, or a prefix of one."""
    return any(
        name in (device.visible, str(device.number))
        or (len(name) > 4 and device.uuid.lower().startswith(name.lower()))
        for name in names
    )
