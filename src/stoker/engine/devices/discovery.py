"""Find the devices: simulated ones if configured, else those that the driver reports.

Nothing here may hang: a separate process with a timeout calls the driver.
"""

from __future__ import annotations

from stoker.engine.devices.driver import driver_of_host
from stoker.engine.devices.simulated import SimulatedDriver
from stoker.engine.gpus.sample import GpuSample
from stoker.engine.model import Device


def find_devices(wanted: str | None, by_uuid: bool = False) -> tuple[Device, ...]:
    """Return the devices of this host.

    `wanted` is the setting `devices`: `4` or `0,1,1,2` make simulated devices; None detects GPUs.
    Raises UsageError.
    """
    if wanted:
        return simulated(wanted)
    if not has_driver():
        return ()
    from stoker.engine.devices.driver_client import sample_once

    gpus = sample_once().gpus
    if gpus is None:
        return driver_of_host().listed_devices()
    return tuple(as_device(gpu, by_uuid=by_uuid) for gpu in gpus)


def has_driver() -> bool:
    """Whether this host seems to have the driver of a GPU."""
    return driver_of_host().is_present()


def as_device(gpu: GpuSample, slots: int = 1, by_uuid: bool = False) -> Device:
    return Device(
        number=gpu.number,
        visible=gpu.uuid if by_uuid else gpu.visible,
        slots=slots,
        model=gpu.model,
        uuid=gpu.uuid,
        memory=gpu.total - gpu.reserved,
        pci=gpu.pci,
        slice_of=gpu.slice_of,
        numa=gpu.numa,
        cpus=gpu.cpus,
        links=gpu.links,
    )


def simulated(wanted: str) -> tuple[Device, ...]:
    """Return the devices of the setting `devices`. Raises UsageError.

    >>> [(device.visible, device.slots) for device in simulated("0,1,1")]
    [('0', 1), ('1', 2)]
    """
    driver = SimulatedDriver(wanted)
    return tuple(
        as_device(gpu, device.slots)
        for gpu, device in zip(driver.gpus(0.0), driver.devices, strict=True)
    )
