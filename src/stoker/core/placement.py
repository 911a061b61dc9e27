"""Which devices one job would get, given what is in use."""

from __future__ import annotations

from collections.abc import Iterable

from stoker.core.model import Device, RunningJob


def free_slots(devices: Iterable[Device], running: Iterable[RunningJob]) -> dict[int, int]:
    """Free slots by device index, in the order in which devices should be filled."""
    free = {device.number: device.slots for device in devices}
    for job in running:
        for index in job.devices:
            if index in free:
                free[index] -= 1
    return free


def place(gpus: int, free: dict[int, int]) -> tuple[int, ...] | None:
    """The devices for a job that wants `gpus` different ones, emptiest first; None if too few.

    Emptiest first spreads jobs over cards before any card is shared.
    """
    if gpus == 1:  # the common case, without a sort
        best, most = None, 0
        for index, slots in free.items():
            if slots > most:
                best, most = index, slots
        return None if best is None else (best,)
    open_devices = [index for index, slots in free.items() if slots > 0]
    if len(open_devices) < gpus:
        return None
    open_devices.sort(key=lambda index: -free[index])
    return tuple(sorted(open_devices[:gpus]))


def next_free_times(
    devices: Iterable[Device], running: Iterable[RunningJob], free: dict[int, int], now: float
) -> list[tuple[float, float, int]]:
    """(when a slot opens, since when it is busy, device), soonest first.

    A device whose jobs have no known end comes last, the longest busy one first: it is the best
    guess there is, and a fixed one, so the same devices stay reserved from turn to turn.
    """
    soonest: dict[int, tuple[float, float]] = {}
    for job in running:
        end = (float("inf") if job.ends_by is None else max(job.ends_by, now), job.started)
        for index in job.devices:
            if index not in soonest or end < soonest[index]:
                soonest[index] = end
    times = []
    for device in devices:
        if free[device.number] > 0:
            times.append((now, float("-inf"), device.number))
        elif device.number in soonest:
            times.append((*soonest[device.number], device.number))
    return sorted(times)
