"""The GPUs of a foreground run: named on the command line, simulated, or all of the host."""

from __future__ import annotations

import os

from stoker.cli.output import notice
from stoker.engine.daemon.gpus.driver_monitor import find_gpus
from stoker.engine.daemon.gpus.fixed_gpus import FixedGpus
from stoker.engine.daemon.gpus.gpu_file import read_gpu_file
from stoker.engine.daemon.gpus.gpus import Gpus
from stoker.engine.daemon.gpus.monitored_gpus import MonitoredGpus
from stoker.engine.devices.device_names import parse_devices, visible_names
from stoker.engine.devices.discovery import as_device, has_driver, simulated
from stoker.engine.devices.driver_client import sample_once
from stoker.engine.model import Device, DeviceState
from stoker.engine.policy.eligible import is_named
from stoker.errors import Impossible, UsageError
from stoker.settings import Settings, cpu_slots
from stoker.text.command_line import Parsed

_OPEN = DeviceState()


def gpus_of(parsed: Parsed, settings: Settings, tag_base: int) -> Gpus:
    """The GPUs that the run uses. Raises UsageError or Impossible for names of unknown GPUs."""
    named = parsed["devices"]
    if named is not None and not named.strip():
        raise UsageError("`--devices` is empty", "for jobs without a GPU: --gpus 0")
    if named is None and not settings.devices and os.environ.get("CUDA_VISIBLE_DEVICES"):
        named = visible_names(os.environ["CUDA_VISIBLE_DEVICES"])
        if not named:
            return FixedGpus(())
    if named is None:
        return _sampled(find_gpus(settings, tag_base), ())
    devices = parse_devices(named)
    if settings.devices:
        _check_known(devices, simulated(settings.devices))
        return FixedGpus(devices)
    if not has_driver():  # cannot be checked; they may be GPUs of another vendor
        return FixedGpus(devices)
    if any("," in device.visible for device in devices):
        # A pair such as 0+1 is one device for Stoker, but not for the driver.
        _check_known(devices, tuple(map(as_device, sample_once().gpus or ())))
        return FixedGpus(devices)
    # Inside a job, the GPUs of the job are already leased, and the run may use them.
    inherited = os.environ.get("STOKER_GPU_UUIDS", "").split(",")
    gpus = MonitoredGpus(tag_base, settings.leases, settings.gpus_by_uuid, inherited)
    gpus.use_only({device.visible: device.slots for device in devices})
    return _sampled(gpus, devices)


def check_gpu_file(path: str, gpus: Gpus) -> None:
    """Raise UsageError if the file of `--gpu-file` cannot be used when the run starts."""
    try:
        read_gpu_file(path)
    except OSError as error:
        raise UsageError(f"cannot read the GPU file `{path}`: {error.strerror}") from None
    except (ValueError, UsageError) as error:
        why = error.message if isinstance(error, UsageError) else "it is not UTF-8 text"
        raise UsageError(
            f"cannot use the GPU file `{path}`: {why}", "write 0,1 or one GPU per line"
        ) from None
    if not gpus.is_monitored:
        notice("warning: `--gpu-file` has no effect: the GPUs of this run cannot change")


def _sampled(gpus: Gpus, named: tuple[Device, ...]) -> Gpus:
    """The same GPUs, after a first sample of their state."""
    if isinstance(gpus, MonitoredGpus):
        gpus.update(sample_once(), {})
        if gpus.problem is not None:
            notice(f"no GPU can be used: {gpus.problem}")
        else:
            _check_known(named, gpus.devices)
    return gpus


def _check_known(named: tuple[Device, ...], known: tuple[Device, ...]) -> None:
    """Raise Impossible for an unknown GPU, if it is known which GPUs this host has."""
    for name in (name for device in named for name in device.visible.split(",")):
        if known and not any(is_named(device, (name,)) for device in known):
            names = ", ".join(device.visible for device in known)
            raise Impossible(f"there is no GPU `{name}` on this host", f"its GPUs: {names}")


def usable_devices(gpus: Gpus) -> tuple[Device, ...]:
    """The devices that jobs of this run may use."""
    return tuple(d for d in gpus.devices if gpus.states.get(d.number, _OPEN).closed_reason is None)


def max_parallel_jobs(gpus: Gpus, parsed: Parsed, settings: Settings) -> int:
    """How many jobs can run at the same time."""
    slots = sum(device.slots for device in gpus.devices)
    return slots or parsed["jobs"] or cpu_slots(settings)
