"""How jobs share a GPU: under NVIDIA's MPS, or by time slices.

A GPU serves jobs of one mode at a time. A job uses MPS if it or its GPU is set up for it and if it
runs on one GPU that it may share; where MPS does not work, the job runs with time slices instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stoker.engine.model import MPS, TIME, Device, DeviceState, Request

_OPEN = DeviceState()


def parse_share(text: str) -> str:
    """Return a share option in its usual form. Raises ValueError if it is not one.

    >>> parse_share("MPS"), parse_share("mps:50"), parse_share("time")
    ('mps', 'mps:50', 'time')
    """
    mode, colon, percent = text.strip().lower().partition(":")
    if mode == TIME and not colon:
        return TIME
    if mode != MPS or (colon and not (percent.isdecimal() and 1 <= int(percent) <= 100)):
        raise ValueError(text)
    return f"{MPS}:{int(percent)}" if colon else MPS


def thread_percentage(share: str) -> int | None:
    """Return the part of the GPU's threads that a job may use, in percent; None: no limit.

    >>> thread_percentage("mps:50"), thread_percentage("mps"), thread_percentage("")
    (50, None, None)
    """
    _, _, percent = share.partition(":")
    return int(percent) if percent else None


def wants_mps(request: Request, device: Device) -> bool:
    """Whether a job with this request runs under MPS on this device, if MPS works there."""
    if request.gpus != 1 or request.exclusive or not device.pci:  # simulated GPUs have no address
        return False
    return (request.share or device.share).startswith(MPS)


def mode_of(request: Request, device: Device, state: DeviceState) -> str:
    """Return the mode in which a job with this request would share the device now."""
    return MPS if state.mps_problem is None and wants_mps(request, device) else TIME


def conflict_words(mode: str, jobs_mode: str | None, other_user: str | None) -> str | None:
    """Why a job of this mode cannot start beside the jobs of a GPU; None if it can.

    `jobs_mode`: the mode of these jobs, None without jobs; `other_user`: who else computes there.
    """
    if mode == MPS and other_user is not None:
        return f"is used by {other_user}, and MPS serves the jobs of one user"
    if jobs_mode in (None, mode):
        return None
    if mode == MPS:
        return "serves jobs without MPS, and this job uses MPS"
    return "serves jobs under MPS, and this job does not use MPS"


def share_of_start(
    request: Request,
    devices: tuple[int, ...],
    known: Iterable[Device],
    states: Mapping[int, DeviceState],
) -> str:
    """Return "mps" for a job that starts under MPS on these devices, else ""."""
    if len(devices) != 1:
        return ""
    for device in known:
        if device.number == devices[0]:
            mode = mode_of(request, device, states.get(device.number, _OPEN))
            return MPS if mode == MPS else ""
    return ""
