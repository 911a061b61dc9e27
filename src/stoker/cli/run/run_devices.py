"""The devices of a foreground run: named, simulated, or all that the driver tells of."""

from __future__ import annotations

import os

from stoker.cli.output import notice
from stoker.core.formats.command_line import Parsed
from stoker.core.model import Device, DeviceState
from stoker.core.policy.placement import is_named
from stoker.daemon.gpus.driver_monitor import find_gpus
from stoker.daemon.gpus.fixed_gpus import FixedGpus
from stoker.daemon.gpus.monitored_gpus import MonitoredGpus
from stoker.devices.discovery import as_device, has_driver, parse_devices, simulated, visible_names
from stoker.devices.nvml_client import sample_once
from stoker.errors import Impossible, UsageError
from stoker.settings import Settings, cpu_slots

_OPEN = DeviceState()


def cards_of(parsed: Parsed, settings: Settings, tag_base: int) -> FixedGpus:
    named = parsed["devices"]
    if named is not None and not named.strip():
        raise UsageError("`--devices` names no device", "for jobs without a GPU: --gpus 0")
    if named is None and not settings.devices and os.environ.get("CUDA_VISIBLE_DEVICES"):
        named = visible_names(os.environ["CUDA_VISIBLE_DEVICES"])
        if not named:
            return FixedGpus(())
    if named is None:
        return _looked_at(find_gpus(settings, tag_base), ())
    devices = parse_devices(named)
    if settings.devices:
        _check_known(devices, simulated(settings.devices))
        return FixedGpus(devices)
    if not has_driver():  # nobody can tell; they may be cards of another kind
        return FixedGpus(devices)
    if any("," in device.visible for device in devices):
        # Pairs such as 0+1 are devices of our own making; the driver knows nothing of them.
        _check_known(devices, tuple(map(as_device, sample_once().cards or ())))
        return FixedGpus(devices)
    # Inside a job, its cards are leased already, and to us as well.
    held = os.environ.get("STOKER_GPU_UUIDS", "").split(",")
    cards = MonitoredGpus(tag_base, settings.leases, settings.gpus_by_uuid, held)
    cards.use_only({device.visible: device.slots for device in devices})
    return _looked_at(cards, devices)


def _looked_at(cards: FixedGpus, named: tuple[Device, ...]) -> FixedGpus:
    if isinstance(cards, MonitoredGpus):
        cards.update(sample_once(), {})
        if cards.problem is not None:
            notice(f"no GPU can be used: {cards.problem}")
        else:
            _check_known(named, cards.devices)
    return cards


def _check_known(named: tuple[Device, ...], known: tuple[Device, ...]) -> None:
    """Refuse a device that this host does not have, where it is known what it has."""
    for name in (name for device in named for name in device.visible.split(",")):
        if known and not any(is_named(device, (name,)) for device in known):
            names = ", ".join(device.visible for device in known)
            raise Impossible(f"there is no GPU `{name}` on this host", f"its GPUs: {names}")


def usable(cards: FixedGpus) -> tuple[Device, ...]:
    """What a job of this run may ask for."""
    return tuple(d for d in cards.devices if cards.states.get(d.number, _OPEN).closed is None)


def at_a_time(cards: FixedGpus, parsed: Parsed, settings: Settings) -> int:
    slots = sum(device.slots for device in cards.devices)
    return slots or parsed["jobs"] or cpu_slots(settings)
